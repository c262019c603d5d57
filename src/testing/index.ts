export { type Delivery, type RunOptions, TestKit, type TestKitOptions } from "./kit.ts";
