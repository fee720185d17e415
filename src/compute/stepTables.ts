/**
 * The rows of a step as kernels want them. A row is one token of one sequence, at its position; it attends to
 * the tokens up to its own, as far as the window goes back. It is cut into items, one for each split of 128
 * tokens at absolute positions that it sees. So what is added up before what depends on the row's position
 * and on the window, and never on the batch or on how a prompt was cut into chunks.
 *
 * Partial results of items take room, so a step is cut into batches of whole rows whose items fit there.
 */

import { configError, requireInteger } from '../runtime/errors.ts';

/** Tokens of one split. shaders/pagedRows.wgsl has the same number. */
export const SPLIT_TOKENS = 128;
/** The position of a row that is no token: nothing is written for it, and it attends to nothing. */
export const NO_TOKEN = 0xffffffff;
export const ROW_WORDS = 4;

export interface StepRows {
  /**
   * `[row][4]`: position (or `NO_TOKEN`), first entry of its sequence's block table, and two words unused.
   */
  readonly rows: Uint32Array;
  /** `[entry][2]`: slab and offset in bytes of a block, the sequences' tables one behind the other. */
  readonly entries: Uint32Array;
}

/** Rows that one dispatch of each kernel covers, and their items. */
export interface StepBatch {
  readonly firstRow: number;
  readonly rows: number;
  readonly firstItem: number;
  readonly items: number;
}

export interface TableLimits {
  readonly rowsMax: number;
  readonly entriesMax: number;
  /** Most tokens that a row sees. */
  readonly contextTokens: number;
  readonly blockTokens: number;
  readonly window: number;
  readonly slabs: number;
  /** Bytes of which offsets are multiples. */
  readonly unitBytes: number;
  /** Items whose partial results have room at once. */
  readonly batchItems: number;
}

export interface StepTables {
  /** `[row][4]`: position, first entry, first item, items. */
  readonly rows: Uint32Array<ArrayBuffer>;
  /** `[item][2]`: row, split. */
  readonly items: Uint32Array<ArrayBuffer>;
  readonly batches: readonly StepBatch[];
}

/** Splits that a row can see: a window may begin in the middle of one. */
export function splitsMax({ contextTokens, window }: Pick<TableLimits, 'contextTokens' | 'window'>): number {
  const all = Math.ceil(contextTokens / SPLIT_TOKENS);
  return window === 0 ? all : Math.min(all, Math.ceil(window / SPLIT_TOKENS) + 1);
}

/**
 * @throws TKV_CONFIG naming the table and its place where something is out of bounds: a kernel would read
 * whatever lies there
 */
export function stepTables(step: StepRows, limits: TableLimits): StepTables {
  const count = checkedRows(step, limits);
  const rows = new Uint32Array(count * ROW_WORDS);
  const items: number[] = [];
  const batches: StepBatch[] = [];
  let firstRow = 0;
  let firstItem = 0;
  const close = (row: number): void => {
    const length = items.length / 2;
    if (row > firstRow)
      batches.push({ firstRow, rows: row - firstRow, firstItem, items: length - firstItem });
    firstRow = row;
    firstItem = length;
  };
  for (let row = 0; row < count; row++) {
    const position = step.rows[row * ROW_WORDS];
    const [first, end] = splitsOf(position, limits.window);
    if (items.length / 2 + end - first - firstItem > limits.batchItems) close(row);
    rows.set([position, step.rows[row * ROW_WORDS + 1], items.length / 2, end - first], row * ROW_WORDS);
    for (let split = first; split < end; split++) items.push(row, split);
  }
  close(count);
  return { rows, items: Uint32Array.from(items), batches };
}

/** The half-open range of splits that a row sees. */
function splitsOf(position: number, window: number): [first: number, end: number] {
  if (position === NO_TOKEN) return [0, 0];
  const seen = window === 0 ? 0 : Math.max(0, position + 1 - window);
  return [Math.floor(seen / SPLIT_TOKENS), Math.floor(position / SPLIT_TOKENS) + 1];
}

function checkedRows({ rows, entries }: StepRows, limits: TableLimits): number {
  const count = rows.length / ROW_WORDS;
  requireInteger('rows.length / 4', count, 0, limits.rowsMax);
  const blocks = entries.length / 2;
  requireInteger('entries.length / 2', blocks, 0, limits.entriesMax);
  for (let entry = 0; entry < blocks; entry++) {
    requireInteger(`entries[${entry}] slab`, entries[2 * entry], 0, limits.slabs - 1);
    if (entries[2 * entry + 1] % limits.unitBytes !== 0) {
      throw configError(
        `entries[${entry}] offset`,
        `is ${entries[2 * entry + 1]}, no multiple of ${limits.unitBytes} bytes, in which kernels read`,
        `Choose block and page sizes that are multiples of ${limits.unitBytes}.`,
      );
    }
  }
  for (let row = 0; row < count; row++) {
    const position = rows[row * ROW_WORDS];
    if (position === NO_TOKEN) continue;
    requireInteger(`rows[${row}] position`, position, 0, limits.contextTokens - 1);
    const block = rows[row * ROW_WORDS + 1] + Math.floor(position / limits.blockTokens);
    requireInteger(`rows[${row}] last entry`, block, 0, blocks - 1);
  }
  return count;
}
