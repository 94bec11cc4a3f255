// Records from the microphone to a WAV file. Owns the microphone.

export class Recorder {
  #stream = null;
  #context = null;
  #parts = [];

  get isRecording() {
    return this.#stream !== null;
  }

  async start() {
    this.#stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
    this.#context = new AudioContext();
    await this.#context.audioWorklet.addModule("/page/recorder-worklet.js");
    const node = new AudioWorkletNode(this.#context, "recorder");
    this.#parts = [];
    node.port.onmessage = (message) => this.#parts.push(message.data);
    this.#context.createMediaStreamSource(this.#stream).connect(node);
  }

  /** The recording as a Blob of a 16-bit WAV. */
  async stop() {
    const rate = this.#context.sampleRate;
    for (const track of this.#stream.getTracks()) track.stop();
    await this.#context.close();
    this.#stream = this.#context = null;
    return wav(this.#parts, rate);
  }
}

export function wav(parts, rate) {
  const count = parts.reduce((sum, part) => sum + part.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * count));
  const put = (at, text) => [...text].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  put(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); put(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, rate, true); view.setUint32(28, 2 * rate, true); view.setUint16(32, 2, true);
  view.setUint16(34, 16, true); put(36, "data"); view.setUint32(40, 2 * count, true);
  let at = 44;
  for (const part of parts) {
    for (const sample of part) {
      view.setInt16(at, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true);
      at += 2;
    }
  }
  return new Blob([view.buffer], { type: "audio/wav" });
}
