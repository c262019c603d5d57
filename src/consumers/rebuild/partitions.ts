import type { Database } from "../../db/database.ts";
import { type Consumer, type Partition, partitionNames } from "../consumer.ts";
import { rebuildName, shadowSchema } from "./names.ts";
import { readBuilding } from "./sql/rebuilds.ts";

/** Every partition of the rebuilds that these consumers have now. */
export async function rebuildPartitions(
  db: Database,
  consumers: readonly Consumer[],
): Promise<Partition[]> {
  const rows = await readBuilding(
    db,
    consumers.map(({ name }) => name),
  );
  return rows.flatMap(({ id, consumer: name, partitions: count, declared }) => {
    const consumer = consumers.find((one) => one.name === name);
    if (consumer === undefined) return [];
    const schema = shadowSchema(db.names, id);
    const rebuild = { id, consumer: name, schema, declared };
    return partitionNames(rebuildName(name), count).map(
      (partition, index): Partition => ({ name: partition, consumer, index, count, rebuild }),
    );
  });
}
