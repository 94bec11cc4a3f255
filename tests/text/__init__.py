"""What is read: plain text, front ends, tokenizers."""
