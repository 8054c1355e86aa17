"""The sandbox's stand-in for a payment or mail API: a DynamoDB table. Never part of a production stage."""
