"""Grading on attached GPUs, the web side: hosts, what they are sent, what comes back, and who asks for grades."""
