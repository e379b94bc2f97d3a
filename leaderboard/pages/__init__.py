"""Public pages: each view loads from `leaderboard.boards`, and renders. No query and no arithmetic of their own."""
