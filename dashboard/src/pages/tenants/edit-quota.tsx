import { useState } from "react";
import { part } from "../../api/http.ts";
import type { QuotaUse } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { useSession } from "../../session/session.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { TextField } from "../../ui/field.tsx";
import { changesOf, type QuotaTexts, textsOf } from "./quota-text.ts";

const FIELDS: readonly (readonly [keyof QuotaTexts, string])[] = [
  ["pendingTasks", "Tasks that wait or run; empty for no limit"],
  ["pendingBytes", "Bytes of their payloads; empty for no limit"],
  ["rate", "Creates per time, such as 100 per 60 s; empty for no limit"],
];

export function EditQuota({ quota, onClose }: { quota: QuotaUse; onClose: () => void }) {
  const { api } = useSession();
  const act = useAct();
  // As it was when this opened: what others change meanwhile is not what this person changed.
  const [before] = useState(quota);
  const [texts, setTexts] = useState(() => textsOf(before));
  const { tenant } = before;
  const save = async (): Promise<void> => {
    const changes = changesOf(before, texts);
    if (Object.keys(changes).length === 0) throw new Error("Nothing was changed.");
    await api.put(`/v1/tenants/${part(tenant)}/quota`, changes);
  };
  return (
    <Confirm
      title={`Change the quota of ${tenant}?`}
      verb="Change it"
      onConfirm={() => act(save, `The quota of ${tenant} is changed.`)}
      onClose={onClose}
    >
      <p>Every server follows within two seconds. Creates above it are refused; nothing is lost.</p>
      {FIELDS.map(([field, label]) => (
        <TextField
          key={field}
          label={label}
          value={texts[field]}
          onChange={(event) => setTexts({ ...texts, [field]: event.target.value })}
        />
      ))}
    </Confirm>
  );
}
