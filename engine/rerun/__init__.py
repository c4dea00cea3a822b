"""Reruns: recorded conversations run again under a change, and compared with what was recorded.

`runs.py` runs one conversation, `answers.py` finds the recorded answers, `comparison.py` finds the first
difference, `judges.py` judges, `campaign.py` does all of it for many conversations and makes the report.
"""
