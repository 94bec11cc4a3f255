// The page: its fields, its buttons, and what was made. Leaves requests to api.js, sound to player.js.

import { Server } from "/page/api.js";
import { Player, RATE } from "/page/player.js";
import { Recorder, wav } from "/page/recorder.js";
import { snippet } from "/page/snippets.js";
import { Wave } from "/page/wave.js";

const at = (id) => document.getElementById(id);
const server = new Server(), player = new Player(), recorder = new Recorder(), wave = new Wave(at("wave"));
const MOST_KEPT = 20;
let model = "", aborting = null, last = null, recording = null, kind = "curl";

function request() {
  const body = { model, voice: at("voice").value || "default", input: at("text").value };
  if (at("seed").value.trim()) body.seed = seedOf(at("seed").value.trim());
  for (const name of ["temperature", "top_p", "top_k"]) {
    if (at(name).value !== "") body[name] = Number(at(name).value);
  }
  return body;
}

// A seed may have more digits than a number of JavaScript's keeps.
function seedOf(text) {
  const number = Number(text);
  if (!Number.isSafeInteger(number)) throw new Error("On this page a seed is a whole number up to 9007199254740991.");
  return number;
}

function say(text) { at("state").textContent = text; }

function fail(error) {
  at("error").textContent = error === null ? "" : error.message;
  at("error").hidden = error === null;
}

function busy(on) {
  at("speak").disabled = on;
  at("stop").disabled = !on && player.left === 0;
}

async function speak() {
  fail(null);
  let body;
  try {
    body = request();
    // A seed that can be shown and asked for again, in every format.
    body.seed ??= Math.floor(Math.random() * 2 ** 32);
  } catch (error) { fail(error); return; }
  player.start();
  wave.clear();
  busy(true);
  at("stop").disabled = false;
  say("Waiting for the first sound …");
  const pieces = await piecesOf(body.input);
  at("progress").hidden = pieces < 2;
  at("progress").value = 0;
  const parts = [], began = performance.now();
  let first = null, spent = 0, count = 0;
  aborting = new AbortController();
  try {
    for await (const event of server.speak(body, aborting.signal)) {
      if (!event.samples) continue;
      const samples = Float32Array.from(event.samples, (sample) => sample / 32768);
      first ??= performance.now() - began;
      spent = performance.now() - began;
      player.add(samples);
      wave.add(samples, RATE);
      parts.push(samples);
      count += samples.length;
      at("progress").value = (event.piece + 1) / pieces;
      say(pieces > 1 ? `Sentence ${event.piece + 1} of ${pieces}` : "Speaking …");
      show(first, spent, count, body.seed);
    }
    say("Spoken.");
    keep({ body, parts, seconds: count / RATE });
  } catch (error) {
    if (error.name === "AbortError") say("Stopped.");
    else { player.stop(); say("It failed."); fail(error); }
  } finally {
    aborting = null;
    busy(false);
    waitForEnd();
  }
}

function waitForEnd() {
  if (aborting === null && player.left === 0) at("stop").disabled = true;
  else setTimeout(waitForEnd, 200);
}

function show(first, spent, count, seed) {
  const seconds = count / RATE;
  at("first").textContent = `${Math.round(first)} ms`;
  at("factor").textContent = (spent / 1000 / seconds).toFixed(3);
  at("length").textContent = `${seconds.toFixed(2)} s`;
  at("used-seed").textContent = String(seed);
}

function stop() {
  aborting?.abort();
  player.stop();
  say("Stopped.");
}

function keep(item) {
  last = item;
  at("download").disabled = false;
  at("no-history").hidden = true;
  const line = document.createElement("li"), text = document.createElement("span");
  text.className = "text";
  text.textContent = item.body.input.length > 120 ? item.body.input.slice(0, 117) + "…" : item.body.input;
  const note = document.createElement("span");
  note.className = "muted";
  note.textContent = `${item.seconds.toFixed(2)} s, voice ${item.body.voice}, seed ${item.body.seed}`;
  line.append(text, note, document.createElement("br"), button("Play", () => replay(item)), button("Download", () => download(item)));
  at("history").prepend(line);
  while (at("history").children.length > MOST_KEPT) at("history").lastChild.remove();
}

function button(name, work) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = name;
  made.addEventListener("click", work);
  return made;
}

function replay(item) {
  player.start();
  wave.clear();
  for (const part of item.parts) { player.add(part); wave.add(part, RATE); }
  at("stop").disabled = false;
  waitForEnd();
}

async function download(item) {
  fail(null);
  const format = at("format").value;
  try {
    const sound = await server.file(item.body, format);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(sound);
    link.download = `speech-${item.body.seed}.${format === "opus" ? "ogg" : format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) { fail(error); }
}

async function piecesOf(text) {
  try {
    return (await (await server.post("/page/check", { text })).json()).pieces;
  } catch { return 1; }
}

// ------------------------------------------------------------------ while typing
let typed = 0;
function changed() {
  code();
  const mine = ++typed;
  setTimeout(async () => {
    if (mine !== typed) return;
    const text = at("text").value;
    try {
      const { guessed } = await (await server.post("/page/check", { text })).json();
      if (mine === typed) mark(text, guessed);
    } catch { mark(text, []); }
  }, 200);
}

function mark(text, guessed) {
  const marks = at("marks"), words = new Set(guessed);
  marks.replaceChildren(...text.split(/([\s,.;:!?]+)/).map((part) => {
    if (!words.has(part)) return document.createTextNode(part);
    const made = document.createElement("mark");
    made.textContent = part;
    return made;
  }));
  at("guessed").textContent = guessed.length ? `Guessed from their letters: ${guessed.join(", ")}` : "";
}

function code() {
  let body = { model, voice: "default", input: at("text").value };
  try { body = request(); } catch { /* shown when it is spoken */ }
  at("code").textContent = snippet(kind, location.origin, { ...body, response_format: at("format").value }, Boolean(server.key));
}

// ------------------------------------------------------------------ voices
async function listVoices() {
  const { voices, can_add: canAdd } = await server.get("/v1/audio/voices");
  const chosen = at("voice").value;
  at("voice").replaceChildren(...voices.map(({ id }) => new Option(id, id, false, id === chosen)));
  at("add-voice").hidden = !canAdd;
}

async function addVoice() {
  const state = at("voice-state"), sound = at("voice-file").files[0] ?? recording;
  if (!sound) { state.textContent = "Choose a file, or record one."; return; }
  state.textContent = "Adding …";
  try {
    const { name } = await server.addVoice(at("voice-name").value, sound, at("voice-text").value);
    await listVoices();
    at("voice").value = name;
    state.textContent = `${name} was added.`;
    code();
  } catch (error) { state.textContent = error.message; }
}

async function record() {
  const state = at("voice-state");
  try {
    if (recorder.isRecording) {
      recording = await recorder.stop();
      state.textContent = "Recorded.";
    } else {
      await recorder.start();
      state.textContent = "Recording … press again to end.";
    }
  } catch (error) { state.textContent = `The microphone cannot be used: ${error.message}`; }
  at("record").textContent = recorder.isRecording ? "End" : "Record";
  at("record").setAttribute("aria-pressed", String(recorder.isRecording));
}

// ------------------------------------------------------------------ all together
at("form").addEventListener("submit", (event) => { event.preventDefault(); speak(); });
at("stop").addEventListener("click", stop);
at("download").addEventListener("click", () => download(last));
at("record").addEventListener("click", record);
at("voice-form").addEventListener("submit", (event) => { event.preventDefault(); addVoice(); });
at("key").addEventListener("input", () => { server.key = at("key").value; code(); });
at("text").addEventListener("input", changed);
at("text").addEventListener("scroll", () => { at("marks").scrollTop = at("text").scrollTop; });
for (const id of ["voice", "format", "seed", "temperature", "top_p", "top_k"]) at(id).addEventListener("input", code);
for (const tab of document.querySelectorAll("[data-code]")) {
  tab.addEventListener("click", () => {
    kind = tab.dataset.code;
    for (const other of document.querySelectorAll("[data-code]")) other.setAttribute("aria-pressed", String(other === tab));
    code();
  });
}
at("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(at("code").textContent);
  at("copy").textContent = "Copied";
  setTimeout(() => { at("copy").textContent = "Copy"; }, 1500);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); if (!at("speak").disabled) speak(); }
  if (event.key === "Escape" && !at("stop").disabled) stop();
});

const about = await server.get("/page/about");
model = about.model;
at("model").textContent = `${about.model} · ${about.note}`;
at("text").value = about.example;
at("text").maxLength = about.max_characters;
await listVoices();
changed();
document.body.dataset.ready = "true";
Object.assign(window, { dualar: { player, wave, wav } }); // for tests
