"""Send the receipt of a charged order."""
