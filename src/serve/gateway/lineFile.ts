/**
 * A file of lines that is written beside the work, in parts. The part that is written has the name that was asked for; when
 * it is full, or when someone asks for it, it is moved to that name with the next number behind it, and a new one begins:
 *
 *     gateway.log.1   gateway.log.2   gateway.log        written in this order
 *
 * No line is lost between two parts, and none stands in both. A file that is there at the start is moved in the same way.
 * A disk that cannot keep up costs lines, never memory: from the first one that is lost the file ends.
 */

import { createWriteStream, existsSync, readdirSync, renameSync, statSync, type WriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { requireWritableTarget } from '../../io/files/results.ts';

/** Bytes that may wait for the disk. Beyond them the file is cut, and the work goes on. */
const WAITING_BYTES_MOST = 64 * 2 ** 20;
/** Bytes of lines that are put together into one write. */
const BATCH_BYTES = 64 * 2 ** 10;

/** Whole lines that are written together. */
interface LineBatch {
  readonly text: string;
  readonly lines: number;
}

interface LineFileOptions {
  /** Bytes after which a part is full. */
  readonly partBytes: number;
  /** Finished parts that are kept, the newest ones; 0 for all. */
  readonly keepParts: number;
  /** First line of a part. @param part 0 for the first one of this run */
  readonly header?: (part: number) => object;
}

export class LineFile {
  readonly path: string;
  readonly #options: LineFileOptions;
  #stream: WriteStream;
  #batch: string[] = [];
  #batchBytes = 0;
  /** Bytes of batches that wait for a new part. */
  #heldBytes = 0;
  #held: LineBatch[] = [];
  #partBytes = 0;
  #part = 0;
  #scheduled = false;
  #failed: Error | undefined;
  /** The change to a new part; fulfilled when none is under way. */
  #turning: Promise<void> = Promise.resolve();
  #turns = false;
  /** Lines that could not be written; of a write that fails, all. From the first one on the file ends. */
  lost = 0;
  /** Parts that were finished. */
  finished = 0;

  /** @throws TKV_IO where the file cannot be written */
  constructor(path: string, options: LineFileOptions) {
    requireWritableTarget(path);
    this.path = path;
    this.#options = options;
    if (isFilled(path)) renameSync(path, this.#nextName());
    this.#stream = this.#opened();
    this.#begin();
  }

  /** The disk's error, where it failed. */
  get failure(): string | undefined {
    if (this.#failed !== undefined) return this.#failed.message;
    return this.lost > 0 ? 'the disk is slower than the requests' : undefined;
  }

  add(record: object): void {
    const waiting = this.#stream.writableLength + this.#heldBytes;
    if (this.lost > 0 || this.#failed !== undefined || waiting > WAITING_BYTES_MOST) {
      this.lost++;
      return;
    }
    this.#line(record);
    if (this.#partBytes >= this.#options.partBytes) this.turn();
  }

  /** Ends the part and begins a new one, such as after its file was moved away. */
  turn(): void {
    if (this.#turns || this.#failed !== undefined) return;
    this.#flush();
    this.#turns = true;
    this.#partBytes = 0;
    this.#turning = this.#turn();
  }

  async #turn(): Promise<void> {
    await ended(this.#stream);
    try {
      // someone else may have moved it already
      if (existsSync(this.path)) renameSync(this.path, this.#nextName());
      this.finished++;
      await this.#forgetOldest();
      this.#stream = this.#opened();
    } catch (error) {
      this.#failed ??= error as Error;
    }
    this.#turns = false;
    const held = this.#held.splice(0);
    this.#heldBytes = 0;
    if (this.#failed === undefined) {
      this.#part++;
      this.#begin();
    }
    for (const batch of held) this.#write(batch);
  }

  /** Begins a part with its header, which does not count as a line that may be lost. */
  #begin(): void {
    const { header } = this.#options;
    if (header !== undefined) this.#write({ text: `${JSON.stringify(header(this.#part))}\n`, lines: 0 });
  }

  #write({ text, lines }: LineBatch): void {
    if (this.#failed !== undefined) {
      this.lost += lines;
      return;
    }
    this.#stream.write(text, (error) => {
      if (!error) return;
      this.#failed ??= error;
      this.lost += lines;
    });
  }

  #line(record: object): void {
    const line = `${JSON.stringify(record)}\n`;
    this.#batch.push(line);
    this.#batchBytes += line.length;
    this.#partBytes += line.length;
    if (this.#batchBytes >= BATCH_BYTES) this.#flush();
    else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        this.#flush();
      });
    }
  }

  #flush(): void {
    if (this.#batch.length === 0) return;
    const batch: LineBatch = { text: this.#batch.join(''), lines: this.#batch.length };
    this.#batch = [];
    this.#batchBytes = 0;
    if (!this.#turns) {
      this.#write(batch);
      return;
    }
    this.#held.push(batch);
    this.#heldBytes += batch.text.length;
  }

  #opened(): WriteStream {
    const stream = createWriteStream(this.path, { flags: 'w' });
    stream.on('error', (error) => {
      this.#failed ??= error;
    });
    return stream;
  }

  #nextName(): string {
    return `${this.path}.${(partNumbers(this.path).at(-1) ?? 0) + 1}`;
  }

  async #forgetOldest(): Promise<void> {
    const { keepParts } = this.#options;
    if (keepParts === 0) return;
    for (const part of partNumbers(this.path).slice(0, -keepParts)) {
      await rm(`${this.path}.${part}`, { force: true });
    }
  }

  /** Writes what is left. */
  async close(): Promise<void> {
    await this.#turning;
    this.#flush();
    if (this.#failed === undefined) await ended(this.#stream);
  }
}

async function ended(stream: WriteStream): Promise<void> {
  await new Promise<void>((resolve) => {
    stream.once('error', () => resolve());
    stream.end(() => resolve());
  });
}

function isFilled(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat?.isFile() === true && stat.size > 0;
}

/** Numbers of the finished parts of a file, those of earlier runs among them, the oldest first. */
function partNumbers(path: string): readonly number[] {
  const name = basename(path);
  return readdirSync(dirname(path))
    .flatMap((each) => (each.startsWith(`${name}.`) ? [each.slice(name.length + 1)] : []))
    .filter((rest) => /^[1-9]\d{0,8}$/.test(rest))
    .map(Number)
    .sort((a, b) => a - b);
}

/** The parts of a file, in the order in which they were written. */
export function partsOf(path: string): readonly string[] {
  return [...partNumbers(path).map((number) => `${path}.${number}`), path];
}
