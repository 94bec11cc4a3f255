"""`dualar serve`: many callers at once on one model, over HTTP as OpenAI's speech API has it, a WebSocket and Wyoming.

Owns the way between the network and the engine. Every request is a row of one `Batch`, which one thread steps
(`engine_thread.py`); the event loop only moves bytes, and what computes, encodes or reads files runs in threads.
"""
