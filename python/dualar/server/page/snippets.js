// A request as code to copy. Owns the texts.

export function snippet(kind, origin, body, hasKey) {
  const json = JSON.stringify(body, null, 2);
  const name = `speech.${body.response_format === "opus" ? "ogg" : body.response_format}`;
  if (kind === "curl") {
    const key = hasKey ? ` \\\n  -H "Authorization: Bearer $DUALAR_API_KEY"` : "";
    return `curl ${origin}/v1/audio/speech${key} \\\n  -H "Content-Type: application/json" \\\n`
      + `  -d '${json.replaceAll("'", "'\\''")}' \\\n  -o ${name}`;
  }
  if (kind === "python") {
    const { model, voice, input, response_format: format, ...extra } = body;
    const own = Object.keys(extra).length ? `\n    extra_body=${JSON.stringify(extra)},` : "";
    return `from openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key=${hasKey ? "KEY" : '"none"'})\n`
      + `with client.audio.speech.with_streaming_response.create(\n    model=${JSON.stringify(model)}, voice=${JSON.stringify(voice)},`
      + `\n    input=${JSON.stringify(input)},\n    response_format=${JSON.stringify(format)},${own}\n) as speech:\n`
      + `    speech.stream_to_file("${name}")`;
  }
  const key = hasKey ? ', Authorization: `Bearer ${key}`' : "";
  return `const answer = await fetch("${origin}/v1/audio/speech", {\n  method: "POST",\n`
    + `  headers: { "Content-Type": "application/json"${key} },\n  body: JSON.stringify(${json.replaceAll("\n", "\n  ")}),\n});\n`
    + `const speech = await answer.blob();`;
}
