/** The decision log of a runtime, in a file. */

import fs from 'node:fs';
import { type DecisionSink, LogWriter, type ManagerConfig, TierKVError } from '../../runtime/index.ts';

export interface DecisionLogFile {
  readonly sink: DecisionSink;
  /** The log is whole. */
  close(): void;
}

/** @throws TKV_IO when the file cannot be made */
export function openDecisionLog(path: string, config: ManagerConfig): DecisionLogFile {
  let file: number;
  try {
    file = fs.openSync(path, 'w', 0o600);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_IO',
      `log cannot be written (${why}). Name a file in a directory that exists.`,
      {
        field: 'log',
        path,
        cause,
      },
    );
  }
  const writer = new LogWriter(config, { log: (text) => fs.writeSync(file, text) });
  return {
    sink: writer,
    close: () => {
      writer.end();
      fs.closeSync(file);
    },
  };
}
