#!/usr/bin/env node
import { runCommandLine } from "./command-line.ts";
import { tolerateClosedPipe } from "./output.ts";

tolerateClosedPipe();
process.exitCode = await runCommandLine(process.argv.slice(2));
