/**
 * Requests and answers as lines of JSON. Answers come as they are ready, each with the id of its request.
 * `shutdown`, or the end of the input, ends the loop once all that was asked is answered.
 */

import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import type { EvaluationService } from '../../../evolve/serve/index.ts';
import { maxJsonValues, parseJson } from '../../../runtime/boundedJson.ts';
import { TierKVError } from '../../../runtime/errors.ts';

const LINE_MAX = 4_000_000;

export async function serveLines(
  service: EvaluationService,
  input: Readable,
  output: Writable,
  signal?: AbortSignal,
): Promise<void> {
  const lines = createInterface({ input, crlfDelay: Infinity });
  const stop = (): void => lines.close();
  signal?.addEventListener('abort', stop, { once: true });
  const open = new Set<Promise<void>>();
  const write = (answer: unknown): void => {
    output.write(`${JSON.stringify(answer)}\n`);
  };
  const refuse = (message: string): void => write({ id: null, error: { code: 'TKV_INPUT', message } });
  try {
    for await (const line of lines) {
      if (line.trim() === '') continue;
      if (line.length > LINE_MAX) {
        refuse(`a request has more than ${LINE_MAX} characters. Send less.`);
        continue;
      }
      let request: unknown;
      try {
        const error = (problem: string): TierKVError => new TierKVError('TKV_INPUT', `a line ${problem}`);
        request = parseJson(line, error, maxJsonValues, 'is no JSON');
      } catch (error) {
        refuse(`${error instanceof Error ? error.message : String(error)}. Send one request a line.`);
        continue;
      }
      const task = service.handle(request).then(write);
      open.add(task);
      void task.finally(() => open.delete(task));
      if (isShutdown(request)) break;
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    lines.close();
    if (signal?.aborted === true) service.close();
    await Promise.all(open);
  }
}

export function isShutdown(request: unknown): boolean {
  return (
    typeof request === 'object' && request !== null && 'method' in request && request.method === 'shutdown'
  );
}
