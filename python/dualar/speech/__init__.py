"""From a text to sound: the request, the engine's verbs, and speech as a stream."""
