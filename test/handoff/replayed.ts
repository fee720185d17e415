/** A decision log that is decided again. */

import { readFileSync } from 'node:fs';
import { LogReader, LogWriter } from '../../src/runtime/index.ts';
import { replayLog } from '../../src/runtime/log/replayer.ts';

/** Whether the inputs of the log lead to the same decisions, byte for byte. @throws TKV_INPUT for one that is damaged or cut */
export function isReplayed(path: string): boolean {
  const text = readFileSync(path, 'utf8');
  const lines = text.trimEnd().split('\n');
  const head = new LogReader(path);
  head.read(lines[0]);
  const again: string[] = [];
  const writer = new LogWriter(head.config, { log: (part) => void again.push(part) });
  replayLog(lines, path, writer);
  writer.end();
  return again.join('') === text;
}
