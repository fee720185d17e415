/** Files of lines in parts: no line is lost or written twice, by any end of the parts, and a log is decided again over all of them. */

import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { decideAgain } from '../../src/serve/gateway/decisionLog.ts';
import { LineFile, partsOf } from '../../src/serve/gateway/lineFile.ts';
import { prefixBundle, recordedRun } from './recordedRun.ts';

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});
function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'tierkv-lines-'));
  folders.push(made);
  return made;
}

const all = { partBytes: 2 ** 30, keepParts: 0 };
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const linesIn = (path: string): string[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
const numbersIn = (path: string): number[] =>
  partsOf(path)
    .flatMap(linesIn)
    .map((line) => JSON.parse(line) as { readonly i?: number })
    .flatMap(({ i }) => (i === undefined ? [] : [i]));
const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

describe('a file of lines', () => {
  it('goes on in a new file when one is full, with a header in each', async () => {
    const path = join(folder(), 'gateway.log');
    const file = new LineFile(path, { partBytes: 1000, keepParts: 0, header: (part) => ({ part }) });
    let count = 0;
    for (; file.finished < 6; count++) {
      file.add({ i: count, text: 'x'.repeat(20) });
      if (count % 7 === 0) await turn();
    }
    await file.close();
    const parts = partsOf(path);
    expect(parts.length).toBeGreaterThan(4);
    expect(file.finished).toBe(parts.length - 1);
    expect(parts.map((part) => (JSON.parse(linesIn(part)[0]) as { part: number }).part)).toEqual(
      upTo(parts.length),
    );
    expect(numbersIn(path)).toEqual(upTo(count));
    expect(file.lost).toBe(0);
  });

  it('loses nothing when someone moves it away and asks for a new one', async () => {
    const dir = folder();
    const path = join(dir, 'gateway.log');
    const file = new LineFile(path, all);
    for (const i of upTo(300)) {
      file.add({ i });
      if (i % 50 === 25) {
        while (!readdirSync(dir).includes('gateway.log')) await turn();
        renameSync(path, join(dir, `gateway.log.${Math.floor(i / 50) + 1}`));
        file.turn();
      }
      if (i % 50 === 40) while (!readdirSync(dir).includes('gateway.log')) await turn();
    }
    await file.close();
    expect(numbersIn(path)).toEqual(upTo(300));
    expect(partsOf(path)).toHaveLength(7);
  });

  it('of an earlier run is moved, and not overwritten', async () => {
    const path = join(folder(), 'gateway.log');
    for (const run of [0, 1, 2]) {
      const file = new LineFile(path, all);
      file.add({ i: run });
      await file.close();
    }
    expect(numbersIn(path)).toEqual([0, 1, 2]);
  });

  it('keeps the newest parts where not all are wanted', async () => {
    const path = join(folder(), 'gateway.log');
    const file = new LineFile(path, { partBytes: 100, keepParts: 3 });
    let count = 0;
    for (; file.finished < 8; count++) {
      file.add({ i: count, text: 'x'.repeat(50) });
      await turn();
    }
    await file.close();
    const kept = numbersIn(path);
    expect(partsOf(path)).toHaveLength(4);
    expect(kept).toEqual(upTo(count).slice(-kept.length));
  });

  it('whose place is gone ends, says why, and counts what is lost', async () => {
    const dir = folder();
    const path = join(dir, 'sub', 'gateway.log');
    expect(() => new LineFile(path, all)).toThrow(/cannot be written/);
    const other = join(dir, 'gateway.log');
    const file = new LineFile(other, all);
    file.add({ i: 0 });
    while (!(readdirSync(dir).includes('gateway.log') && readFileSync(other).length > 0)) await turn();
    rmSync(dir, { recursive: true });
    folders.pop();
    file.turn();
    while (file.failure === undefined) await turn();
    file.add({ i: 1 });
    expect([file.lost, file.failure]).toEqual([1, expect.stringMatching(/ENOENT|no such/)]);
    await file.close();
  });

  it('whose part cannot be renamed counts the lines that waited for the next one', async () => {
    // with a number behind it, the name is longer than a name may be
    const path = join(folder(), 'l'.repeat(254));
    const file = new LineFile(path, { ...all, header: (part) => ({ part }) });
    file.add({ i: 0 });
    file.turn();
    for (const i of [1, 2]) {
      file.add({ i });
      await turn();
    }
    while (file.failure === undefined) await turn();
    file.add({ i: 3 });
    await file.close();
    expect([file.lost, file.failure]).toEqual([3, expect.stringMatching(/^ENAMETOOLONG/)]);
    expect(numbersIn(path)).toEqual([0]);
  });

  it.runIf(existsSync('/dev/full'))('on a full disk counts every line that it was given', async () => {
    const path = join(folder(), 'gateway.log');
    symlinkSync('/dev/full', path);
    const file = new LineFile(path, { ...all, header: (part) => ({ part }) });
    for (const i of upTo(5)) {
      file.add({ i });
      await turn();
    }
    await file.close();
    expect([file.lost, file.failure]).toEqual([5, expect.stringMatching(/^ENOSPC/)]);
  });
});

describe('a log in parts', () => {
  async function written(parts: number): Promise<{ path: string; decisions: number }> {
    const { lines, outputs } = await recordedRun({ policy: prefixBundle }, 5, 400);
    const path = join(folder(), 'gateway.log');
    const [first, ...rest] = lines;
    const each = Math.ceil(rest.length / parts);
    for (let part = 0; part < parts; part++) {
      const header = { ...(JSON.parse(first) as object), run: 'r', part };
      const name = part === parts - 1 ? path : `${path}.${part + 3}`;
      const text = [JSON.stringify(header), ...rest.slice(part * each, (part + 1) * each)].join('\n');
      writeFileSync(name, `${text}\n`);
    }
    writeFileSync(`${path}.1`, 'of something else\n');
    writeFileSync(
      `${path}.2`,
      `${JSON.stringify({ ...(JSON.parse(first) as object), run: 'other', part: 0 })}\n`,
    );
    return { path, decisions: outputs.length };
  }

  it('is decided again over all of them, by the name of the last one', async () => {
    const { path, decisions } = await written(4);
    expect(await decideAgain(path)).toMatchObject({ differing: 0, decisions, isCut: false });
  });

  it('whose decisions were changed differs in the file and line', async () => {
    const { path } = await written(3);
    const file = `${path}.4`;
    const lines = linesIn(file);
    const at = lines.findIndex((line) => line.includes('"out":"route"'));
    lines[at] = lines[at].replace(/"target":\d+/, '"target":77');
    writeFileSync(file, `${lines.join('\n')}\n`);
    const { differences } = await decideAgain(path);
    expect(differences[0]).toMatchObject({ file, line: at + 1 });
  });

  it('of which one is missing is refused by its number', async () => {
    const { path } = await written(4);
    rmSync(`${path}.4`);
    await expect(decideAgain(path)).rejects.toThrow(/part 4 of a log whose part 2 is not beside it/);
  });

  it('whose part in the middle is cut is refused, since decisions are missing there', async () => {
    const { path } = await written(3);
    const text = readFileSync(`${path}.4`, 'utf8');
    writeFileSync(`${path}.4`, text.slice(0, -20));
    await expect(decideAgain(path)).rejects.toMatchObject({ code: 'TKV_INPUT', path: `${path}.4` });
  });
});
