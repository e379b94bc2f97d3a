"""The review desk: queue, evidence, decisions, audits, releases and tokens of the staff."""
