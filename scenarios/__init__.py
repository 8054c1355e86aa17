"""What the lab plays for this app: events, how an effect is recognised, expected effects, and the naive twins."""
