import { useState } from "react";
import type { Task } from "../../api/types.ts";
import { useAct } from "../../api/use-act.ts";
import { indentJson } from "../../json-text.ts";
import { useSession } from "../../session/session.tsx";
import { Confirm } from "../../ui/confirm.tsx";
import { TextArea } from "../../ui/field.tsx";
import { bodyOf } from "./payload-body.ts";

export interface EditProps {
  readonly task: Task;
  /** As it is stored. */
  readonly payload: string;
  readonly onClose: () => void;
}

/** Replaces what a dead task was given, and lets it run again. */
export function EditAndRedrive({ task, payload, onClose }: EditProps) {
  const { id, payloadBase64, contentType } = task;
  const isBytes = payloadBase64 !== undefined;
  const [text, setText] = useState(isBytes ? payloadBase64 : indentJson(payload));
  const { api } = useSession();
  const act = useAct();
  const redrive = async (): Promise<void> => {
    await api.putText(`/v1/dead-letters/${id}/payload`, bodyOf(text, isBytes, contentType));
    await api.post("/v1/dead-letters/redrive", { ids: [id] });
  };
  return (
    <Confirm
      title={`Edit and redrive task ${id}?`}
      verb="Store and redrive"
      onConfirm={() => act(redrive, `Task ${id} is pending with its new payload.`)}
      onClose={onClose}
    >
      <p>The payload is replaced for good, and the task becomes pending with all its attempts.</p>
      <TextArea
        label={isBytes ? "Payload (base64)" : "Payload (JSON)"}
        rows={12}
        className="font-mono text-xs"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
    </Confirm>
  );
}
