"""The testing API and the chat API that existing front ends speak."""
