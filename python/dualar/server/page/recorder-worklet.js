// Hands the microphone's samples to the page, as AudioWorklet asks.

registerProcessor("recorder", class extends AudioWorkletProcessor {
  process(inputs) {
    if (inputs[0].length) this.port.postMessage(inputs[0][0].slice());
    return true;
  }
});
