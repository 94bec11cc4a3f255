// Draws a waveform that grows. Owns the canvas.

const BARS_PER_SECOND = 40;

export class Wave {
  #canvas;
  #peaks = [];
  #count = 0;
  #peak = 0;
  #drawing = false;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  clear() {
    this.#peaks = [];
    this.#count = this.#peak = 0;
    this.#draw();
  }

  add(samples, rate) {
    const step = rate / BARS_PER_SECOND;
    for (const sample of samples) {
      this.#peak = Math.max(this.#peak, Math.abs(sample));
      if (++this.#count >= step) {
        this.#peaks.push(this.#peak);
        this.#count = this.#peak = 0;
      }
    }
    if (!this.#drawing) {
      this.#drawing = true;
      requestAnimationFrame(() => { this.#drawing = false; this.#draw(); });
    }
  }

  get bars() {
    return this.#peaks.length;
  }

  #draw() {
    const canvas = this.#canvas, scale = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(canvas).getPropertyValue("--wave");
    const most = Math.max(1, Math.floor(width / 3)), peaks = this.#peaks;
    const group = Math.max(1, Math.ceil(peaks.length / most));
    for (let i = 0; i * group < peaks.length; i++) {
      const tall = Math.max(2, Math.max(...peaks.slice(i * group, (i + 1) * group)) * height);
      context.fillRect(i * 3, (height - tall) / 2, 2, tall);
    }
  }
}
