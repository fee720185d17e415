/**
 * What a reader took of a trace and what it left over, filled while it reads: nothing that stands in a file is
 * passed over without being told.
 */

/** Most names that are told one by one. */
const maxNames = 64;

export class TakenColumns {
  /** Names of the columns or fields that were used, with the unit of a time: `timestamp (ms)`. */
  columns: readonly string[] = [];
  /** Where the times come from, in words. */
  times = '';
  readonly #leftOver = new Set<string>();

  /** Begins a pass over the trace. */
  begin(columns: readonly string[], times: string): void {
    this.columns = columns;
    this.times = times;
  }

  /** A column or field that changes nothing. */
  leave(name: string): void {
    if (this.#leftOver.size < maxNames) this.#leftOver.add(name);
  }

  /** Fields of a row that are not among the known ones. */
  leaveOthers(row: Readonly<Record<string, unknown>>, known: ReadonlySet<string>): void {
    for (const name in row) if (!known.has(name)) this.leave(name);
  }

  get leftOver(): readonly string[] {
    return [...this.#leftOver];
  }
}
