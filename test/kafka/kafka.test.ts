// One file, and so one broker for all of them: to start it takes longer than most of them do.
import "./data-loss.cases.ts";
import "./dead-messages.cases.ts";
import "./faults.cases.ts";
import "./ingest.cases.ts";
import "./messages.cases.ts";
import "./outbox.cases.ts";
import "./rebalances.cases.ts";
import "./refusals.cases.ts";
import "./restarts.cases.ts";
import "./stops.cases.ts";
import { useBroker } from "./scene.ts";

useBroker();
