#!/usr/bin/env node
// Starts the program that the package of this platform brings.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";

const platform = `@annex-a2a/${process.platform}-${process.arch}`;
let program;
try {
  program = createRequire(import.meta.url).resolve(`${platform}/annex`);
} catch {
  console.error(`error: the package ${platform} is missing: install annex-a2a without --omit=optional, on a platform that has it`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to the program too, and a second signal would end a server without draining it.
process.on("SIGINT", () => {});
for (const signal of ["SIGHUP", "SIGTERM"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`error: ${program} does not start: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
