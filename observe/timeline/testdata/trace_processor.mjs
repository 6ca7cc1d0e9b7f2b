// Loads a trace into Perfetto's trace processor, the WebAssembly module that ui.perfetto.dev runs, and
// answers SQL about it:
//
//   node trace_processor.mjs ASSETS TRACE SQL...
//
// ASSETS is the folder that has trace_processor.wasm with its glue, engine_bundle.node.js and engine.mjs.
// Prints a JSON list with the rows of every query. docs/timeline.md says where to have the folder from.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [assets, trace, ...queries] = process.argv.slice(2);
const wasm = readFileSync(join(assets, "trace_processor.wasm"));

// The glue is a browser worker's: it asks whether there is 64-bit memory, for which the folder has no
// module, and then fetches the one of 32 bits. Both are answered here, so that no line of it changes.
const web = Object.create(WebAssembly);
web.Module = function (bytes) {
  if (bytes[8] === 5 && bytes[11] === 4) throw new WebAssembly.CompileError("no 64-bit memory");
  return new WebAssembly.Module(bytes);
};
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.length);
  }
};
globalThis.self = globalThis;
globalThis.location = { href: pathToFileURL(resolve(assets)).href + "/" };
globalThis.WorkerGlobalScope = function () {};
const glue = readFileSync(join(assets, "engine_bundle.node.js"), "utf8");
vm.compileFunction(glue, ["WebAssembly"], { filename: "engine_bundle.node.js" })(web);

// The two ends of the channel between the worker and the page.
const worker = {};
const { EngineBase } = await import(pathToFileURL(resolve(assets, "engine.mjs")).href);
class Engine extends EngineBase {
  mode = "WASM";
  id = "check";
  rpcSendRequestBytes(data) {
    worker.onmessage({ data });
  }
  [Symbol.dispose]() {}
}
const engine = new Engine();
worker.postMessage = (data) => engine.onRpcResponseBytes(data);
self.onmessage({ data: worker });
await new Promise((done) => setTimeout(done)); // the module starts in a later turn
// A field of an answer that the decoder does not know is no fault of the trace.
console.warn = () => {};

await engine.parse(readFileSync(trace));
await engine.notifyEof();
const answers = [];
for (const query of queries) {
  const result = await engine.query(query);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(Object.fromEntries(result.columns().map((name) => {
      const value = row.get(name);
      return [name, typeof value === "bigint" ? Number(value) : value];
    })));
  }
  answers.push(rows);
}
console.log(JSON.stringify(answers));
process.exit(0);
