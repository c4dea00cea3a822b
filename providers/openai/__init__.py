"""OpenAI and hosts that speak its APIs: chat completions, Responses and Azure."""
