import { useState } from "react";
import { part } from "../../api/http.ts";
import type { QuotaUse } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { TextField } from "../../ui/field.tsx";
import { readLimit, readRate } from "./quota-text.ts";

const shown = (value: number | null): string => (value === null ? "" : String(value));

export function EditQuota({ quota, onClose }: { quota: QuotaUse; onClose: () => void }) {
  const { tenant, pendingTasks, pendingBytes, rate } = quota;
  const { api } = useSession();
  const act = useAct();
  const [tasks, setTasks] = useState(shown(pendingTasks));
  const [bytes, setBytes] = useState(shown(pendingBytes));
  const [creates, setCreates] = useState(
    rate === null ? "" : shown(Math.round(rate.count / rate.seconds)),
  );
  const save = async (): Promise<void> => {
    await api.put(`/v1/tenants/${part(tenant)}/quota`, {
      pendingTasks: readLimit("Tasks", tasks),
      pendingBytes: readLimit("Bytes", bytes),
      rate: readRate("Creates", creates),
    });
  };
  return (
    <Confirm
      title={`Change the quota of ${tenant}?`}
      verb="Change it"
      onConfirm={() => act(save, `The quota of ${tenant} is changed.`)}
      onClose={onClose}
    >
      <p>Every server follows within two seconds. Creates above it are refused; nothing is lost.</p>
      <TextField
        label="Tasks that wait or run; empty for no limit"
        inputMode="numeric"
        value={tasks}
        onChange={(event) => setTasks(event.target.value)}
      />
      <TextField
        label="Bytes of their payloads; empty for no limit"
        inputMode="numeric"
        value={bytes}
        onChange={(event) => setBytes(event.target.value)}
      />
      <TextField
        label="Creates per second; empty for no limit"
        inputMode="numeric"
        value={creates}
        onChange={(event) => setCreates(event.target.value)}
      />
    </Confirm>
  );
}
