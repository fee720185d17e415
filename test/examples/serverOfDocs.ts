/** The whole server of docs/guide/embedding.md, cut out of the page and made to import this checkout. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { SlotBuffer } from '../../src/backends/webgpu/types.ts';
import type { KVRuntime, KVSequence } from '../../src/index.ts';

const root = join(import.meta.dirname, '..', '..');
/** What users import, and the sources behind it. */
export const doors = { tierkv: 'src/index.ts' };

export interface Running {
  readonly sequence: KVSequence;
  readonly slots: readonly SlotBuffer[];
}
export interface Model {
  prefill(running: Running, open: readonly number[]): Promise<number>;
  decode(batch: readonly Running[]): Promise<number[]>;
}
export interface Request {
  readonly prompt: readonly number[];
  readonly tenant: string;
  readonly maxTokens: number;
  readonly signal: AbortSignal;
  readonly onToken: (token: number) => void;
}
export interface Server {
  serve(request: Request): Promise<void>;
}
export type ServerClass = new (kv: KVRuntime, model: Model, blockTokens: number) => Server;

/** The server's source as the page has it. */
export function serverText(): string {
  const page = readFileSync(join(root, 'docs', 'guide', 'embedding.md'), 'utf8');
  const code = /```ts\n(import \{ setTimeout as sleep[\s\S]*?)```/.exec(page)?.[1];
  if (code === undefined) throw new Error('docs/guide/embedding.md has no server');
  return code;
}

export async function loadServer(): Promise<ServerClass> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-server-'));
  try {
    const file = join(dir, 'server.mts');
    const code = serverText().replace(/'(tierkv(?:\/\w+)?)'/g, (_, door: keyof typeof doors) => {
      return `'${pathToFileURL(join(root, doors[door])).href}'`;
    });
    writeFileSync(file, code);
    const { Server } = (await import(pathToFileURL(file).href)) as { Server: ServerClass };
    return Server;
  } finally {
    rmSync(dir, { recursive: true });
  }
}
