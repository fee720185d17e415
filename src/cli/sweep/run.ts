/**
 * Points of a grid on worker threads. Each point is a simulation of its own, so threads change when it is run
 * and nothing of what comes out; results keep the order of the grid.
 */

import { Worker } from 'node:worker_threads';
import { configError, type ErrorCode, TierKVError } from '../../runtime/errors.ts';
import { flagOf } from '../simulate/input/numbers.ts';
import { type Point, type PointResult, simulateArguments } from './point.ts';
import type { Answer, Task } from './worker.ts';

/** Most points of one sweep. */
const POINTS_MAX = 10_000;

/** `--grid rate=10,20` as the option and its values. */
export function parseAxis(text: string): { readonly name: string; readonly values: readonly string[] } {
  const [name, list, ...rest] = text.split('=');
  const values = (list ?? '').split(',');
  if (rest.length > 0 || name === '' || values.some((value) => value === '')) {
    throw configError('--grid', `is "${text}"`, 'Write option=value,value,... for each option.');
  }
  return { name: name.replace(/^--/, ''), values };
}

/** All combinations, the last axis changing first, each a command line that is read before any is run. */
export function pointsOf(axes: readonly string[], args: readonly string[]): Point[] {
  let points: Record<string, string>[] = [{}];
  for (const axis of axes) {
    const { name, values } = parseAxis(axis);
    if (points[0] !== undefined && name in points[0]) {
      throw configError('--grid', `names ${name} twice`, 'Put its values into one list.');
    }
    points = points.flatMap((point) => values.map((value) => ({ ...point, [name]: value })));
    if (points.length > POINTS_MAX) {
      throw configError('--grid', `has more than ${POINTS_MAX} points`, 'Name fewer values.');
    }
  }
  return points.map((values) => {
    // a name with a dot is a field of the deployment file
    const more = Object.entries(values).flatMap(([name, value]) =>
      name.includes('.') ? ['--set', `${name}=${value}`] : [`--${name}`, value],
    );
    const all = [...args, ...more];
    simulateArguments(all);
    return { values, args: all };
  });
}

export async function runPoints(
  points: readonly Point[],
  workers: number,
  done: (count: number) => void = () => {},
): Promise<PointResult[]> {
  const results: PointResult[] = new Array(points.length);
  let next = 0;
  let finished = 0;
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const serve = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const worker = new Worker(new URL(`./worker.${extension}`, import.meta.url));
      let isDone = false;
      const give = (): void => {
        if (next === points.length) {
          isDone = true;
          void worker.terminate();
          return;
        }
        const task: Task = { index: next, point: points[next++] };
        worker.postMessage(task);
      };
      worker.on('error', reject);
      worker.on('exit', () => {
        if (isDone) resolve();
        else reject(new Error('a thread of the sweep ended before its points were done'));
      });
      worker.on('message', (answer: Answer) => {
        if ('error' in answer) {
          next = points.length;
          void worker.terminate();
          reject(errorOf(answer.error, points[answer.index]));
          return;
        }
        results[answer.index] = answer.result;
        done(++finished);
        give();
      });
      give();
    });
  await Promise.all(Array.from({ length: Math.min(workers, points.length) }, serve));
  return results;
}

function errorOf(
  { code, field, message }: { code: string | undefined; field: string | undefined; message: string },
  point: Point,
): Error {
  const where = Object.entries(point.values)
    .map(([name, value]) => `${flagOf(name)} ${value}`)
    .join(' ');
  if (code === undefined) return new Error(`at ${where}: ${message}`);
  // the code is one that a TierKVError had
  return new TierKVError(code as ErrorCode, `at ${where}: ${message}`, field === undefined ? {} : { field });
}
