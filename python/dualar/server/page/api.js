// What the page asks of its server. Owns the requests; leaves playing and showing to others.

export class ServerError extends Error {}

async function refused(answer) {
  let text = `${answer.status} ${answer.statusText}`;
  try {
    text = (await answer.json()).error.message;
  } catch { /* not the server's own words */ }
  return new ServerError(text);
}

export class Server {
  key = "";

  headers(more = {}) {
    return this.key ? { ...more, Authorization: `Bearer ${this.key}` } : more;
  }

  async get(path) {
    const answer = await fetch(path, { headers: this.headers() });
    if (!answer.ok) throw await refused(answer);
    return answer.json();
  }

  async post(path, body, signal) {
    const answer = await fetch(path, {
      method: "POST", body: JSON.stringify(body), headers: this.headers({ "Content-Type": "application/json" }), signal,
    });
    if (!answer.ok) throw await refused(answer);
    return answer;
  }

  /** The events of a spoken text: {type, ...}, "audio" of a delta as Int16Array at 24 kHz. */
  async *speak(body, signal) {
    const answer = await this.post("/v1/audio/speech", { ...body, response_format: "pcm", stream_format: "sse" }, signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let waiting = "", ended = false;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      waiting += value;
      const lines = waiting.split("\n\n");
      waiting = lines.pop();
      for (const line of lines) {
        const event = JSON.parse(line.slice("data: ".length));
        if (event.type === "error") throw new ServerError(event.error.message);
        if (event.audio !== undefined) event.samples = samplesOf(event.audio);
        ended = event.type === "speech.audio.done";
        yield event;
      }
    }
    if (!ended) throw new ServerError("The connection ended before the speech did.");
  }

  async file(body, format) {
    const answer = await this.post("/v1/audio/speech", { ...body, response_format: format, stream: false });
    return answer.blob();
  }

  async addVoice(name, sound, transcript) {
    const form = new FormData();
    form.append("name", name);
    form.append("audio_sample", sound, "recording");
    if (transcript) form.append("transcript", transcript);
    const answer = await fetch("/v1/audio/voices", { method: "POST", body: form, headers: this.headers() });
    if (!answer.ok) throw await refused(answer);
    return answer.json();
  }
}

function samplesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Int16Array(bytes.buffer);
}
