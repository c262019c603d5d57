import { eventContract } from "../../contract/events.ts";
import { pooledSuite } from "./pooled.ts";

eventContract("through PgBouncer in transaction mode", { ...pooledSuite(), options: {} });
