"""The grading app: records, scores, integrity rules, and the grader. It never imports ``leaderboard``."""
