"""The adapter for Amazon Bedrock's Converse API."""
