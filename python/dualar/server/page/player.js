// Plays samples as they come, one after the other without a gap. Owns the sound device.

export const RATE = 24000;
const LEAD = 0.08; // seconds before the first samples are heard, in which the next ones may arrive

export class Player {
  #context = null;
  #sources = new Set();
  #end = 0;

  /** Must be called from a click or a key, or browsers stay silent. */
  start() {
    this.#context ??= new AudioContext({ sampleRate: RATE });
    this.#context.resume();
    this.stop();
  }

  /** Float32Array at RATE, after what was added before. */
  add(samples) {
    if (samples.length === 0) return;
    const context = this.#context;
    const buffer = context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    const at = Math.max(this.#end, context.currentTime + LEAD);
    source.start(at);
    this.#end = at + buffer.duration;
    this.#sources.add(source);
    source.onended = () => this.#sources.delete(source);
  }

  stop() {
    for (const source of this.#sources) source.stop();
    this.#sources.clear();
    this.#end = 0;
  }

  /** Seconds that are still to be heard. */
  get left() {
    return this.#context === null ? 0 : Math.max(0, this.#end - this.#context.currentTime);
  }
}
