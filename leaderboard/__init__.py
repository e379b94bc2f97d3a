"""The leaderboard: the only code that knows HTTP or the database."""
