import { afterAll, afterEach } from "vitest";
import { cleanUp } from "./database.ts";

/*
 * Test files share a few processes, and with them every module but their own: loading the engine
 * anew took each about a second of processor time. So modules of test/support register no hooks,
 * which only the first file would have. This one is run before each file.
 */

afterEach(() => cleanUp("test"));
afterAll(() => cleanUp("file"));
