/**
 * Points of a grid on worker threads. Each point is a simulation of its own, so threads change when it is run
 * and nothing of what comes out; results keep the order of the grid.
 */

import { Worker } from 'node:worker_threads';
import { threadProgram } from '../../packageFiles.ts';
import { configError } from '../../runtime/errors.ts';
import { simulateArguments } from '../../simulate/arguments.ts';
import type { SweepPoint, SweptPoint } from './point.ts';
import type { PointAnswer, PointTask } from './worker.ts';

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
export function pointsOf(axes: readonly string[], args: readonly string[]): SweepPoint[] {
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

/**
 * A point that cannot run has its error in place of a result, and costs no other one anything; a thread that
 * ends on the way (for want of memory) is such an error of the point that it ran.
 */
export async function runPoints(
  points: readonly SweepPoint[],
  workers: number,
  done: (count: number) => void = () => {},
): Promise<SweptPoint[]> {
  const results: SweptPoint[] = new Array(points.length);
  let next = 0;
  let finished = 0;
  /** One thread, and another one in its place when it fails. */
  const serve = (): Promise<void> =>
    new Promise((resolve) => {
      const worker = new Worker(threadProgram('cli/sweep/worker'));
      let running: number | undefined;
      const end = (index: number, result: SweptPoint): void => {
        results[index] = result;
        running = undefined;
        done(++finished);
      };
      const give = (): void => {
        if (next === points.length) return void worker.terminate();
        running = next++;
        const task: PointTask = { index: running, point: points[running] };
        worker.postMessage(task);
      };
      let problem = 'it ended before its point was done';
      worker.on('error', ({ message }) => {
        problem = message;
      });
      worker.on('exit', () => {
        if (running === undefined) return resolve();
        const { values } = points[running];
        end(running, { values, error: { message: `the thread of the point failed: ${problem}` } });
        resolve(next === points.length ? undefined : serve());
      });
      worker.on('message', ({ index, result }: PointAnswer) => {
        end(index, result);
        give();
      });
      give();
    });
  await Promise.all(Array.from({ length: Math.min(workers, points.length) }, serve));
  return results;
}
