/**
 * The points of a grid, and their runs. Each point is a simulation of its own, so threads do not change its result. Results
 * have the order of the grid.
 */

import { isUnanswered, type TaskRunner } from '../../io/workerPool.ts';
import { configError } from '../../runtime/errors.ts';
import { flagOf, pathOfFlag } from '../description/knobs.ts';
import { askedBy, type ReadWords, readWords } from '../description/readers.ts';
import { refuseOutputs } from './needs.ts';
import type { PointTasks } from './point.ts';
import { failedPoint, type PlannedPoint, planPoint, type SweepPoint, type SweptPoint } from './point.ts';

/** Most points of one sweep. */
const POINTS_MAX = 10_000;

/** `rate=10,20` as an option and its values. */
function parseAxis(text: string): { readonly name: string; readonly values: readonly string[] } {
  const [name, list, ...rest] = text.split('=');
  const values = (list ?? '').split(',');
  if (rest.length > 0 || name === '' || values.some((value) => value === '')) {
    throw configError('grid', `is "${text}"`, 'Write option=value,value,... for each option.');
  }
  return { name: name.replace(/^--/, ''), values };
}

/**
 * The demand that a point has to serve, among its values: the model, the requests and the seed that draws them. Points are compared where this is the
 * same; a deployment that serves fewer requests does not show what more cost.
 */
export function demandOf(values: SweepPoint['values']): SweepPoint['values'] {
  return Object.fromEntries(Object.entries(values).filter(([name]) => isDemand(name)));
}

function isDemand(name: string): boolean {
  if (name.includes('.')) return /^workload\b|^models\[\d+\]\.name$/.test(name);
  const path = pathOfFlag(`--${name}`);
  return path === 'model' || path === 'seed' || path?.startsWith('workload.') === true;
}

/**
 * All combinations, the last axis changing first, each of which is read before any is run.
 * @param words what all points have, as `tierkv simulate` takes it
 */
export function pointsOf(axes: readonly string[], words: ReadWords): SweepPoint[] {
  let points: Record<string, string>[] = [{}];
  for (const axis of axes) {
    const { name, values } = parseAxis(axis);
    if (points[0] !== undefined && Object.hasOwn(points[0], name)) {
      throw configError('grid', `names ${name} twice`, 'Put its values into one list.');
    }
    points = points.flatMap((point) => values.map((value) => ({ ...point, [name]: value })));
    if (points.length > POINTS_MAX) {
      throw configError('grid', `has more than ${POINTS_MAX} points`, 'Name fewer values.');
    }
  }
  for (const name of Object.keys(points[0] ?? {})) {
    // a name with a dot is a field of the deployment file
    if (name.includes('.')) continue;
    const [[flag]] = readWords([`--${name}`, '1']).options;
    const path = pathOfFlag(flag);
    if (
      !words.options.some(([given]) => given === flag || (path !== undefined && pathOfFlag(given) === path))
    )
      continue;
    throw configError('grid', `has values of ${name}, which stands behind -- too`, 'Keep one of them.');
  }
  const remedy = 'Give it before --, as an option of tierkv sweep, or run one point by tierkv simulate.';
  return points.map((values) => {
    // a name with a dot is a field of the deployment file
    const more = Object.entries(values).flatMap(([name, value]) =>
      name.includes('.') ? [flagOf('set'), `${name}=${value}`] : [`--${name}`, value],
    );
    const own = readWords(more);
    refuseOutputs([...words.options, ...own.options], 'a point of a sweep', remedy);
    return { values, read: () => askedBy(words, own).deployment };
  });
}

/**
 * A point that cannot run has its error in place of a result, and costs no other one anything; a thread that ends
 * on the way (for want of memory) is such an error of the point that it ran.
 */
export async function runPoints(
  points: readonly SweepPoint[],
  runner: TaskRunner<PointTasks>,
  done: (count: number) => void = () => {},
): Promise<SweptPoint[]> {
  let finished = 0;
  return Promise.all(
    points.map(async (point) => {
      const swept = await runOne(point, runner);
      done(++finished);
      return swept;
    }),
  );
}

async function runOne(point: SweepPoint, runner: TaskRunner<PointTasks>): Promise<SweptPoint> {
  const { values } = point;
  let atFault: unknown;
  const make = (): PlannedPoint => {
    try {
      return planPoint(point);
    } catch (error) {
      atFault = error;
      throw error;
    }
  };
  try {
    const answer = await runner.run('point', make);
    if (answer !== undefined && !isUnanswered(answer)) return answer;
    const problem = answer === undefined ? 'it was called off' : answer.message;
    return { values, error: { message: `the thread of the point failed: ${problem}` } };
  } catch (error) {
    // any other error is a fault of the runner, not of a point
    if (error !== atFault) throw error;
    return failedPoint(values, error);
  }
}
