"""The agent of a GPU host: needs `grading/requirements.txt` and the broker, neither Django nor the database."""
