/**
 * The module `math`. Its functions are the project's own elementary functions, so that a policy computes the
 * same bits in every engine.
 */

import { exp, log, pow } from '../../../random/elementary.ts';
import { fail } from '../failure.ts';
import { exact, RecordShape, StarFloat, StarFunction, StarRecord, type Value } from '../values/index.ts';
import { numberOf, take } from './parameters.ts';

function real(name: string, compute: (x: number, line: number) => number): StarFunction {
  return new StarFunction(`math.${name}`, (_, positional, named, line) => {
    const [x] = take(`math.${name}`, ['x'], positional, named, line);
    return new StarFloat(compute(numberOf(`math.${name}`, x, line), line));
  });
}

function whole(name: string, compute: (x: number) => number): StarFunction {
  return new StarFunction(`math.${name}`, (_, positional, named, line) => {
    const [x] = take(`math.${name}`, ['x'], positional, named, line);
    return exact(compute(numberOf(`math.${name}`, x, line)), line);
  });
}

const members: Readonly<Record<string, Value>> = {
  ceil: whole('ceil', Math.ceil),
  floor: whole('floor', Math.floor),
  round: whole('round', (x) => Math.sign(x) * Math.floor(Math.abs(x) + 0.5)),
  exp: real('exp', exp),
  fabs: real('fabs', Math.abs),
  log: new StarFunction('math.log', (_, positional, named, line) => {
    const [x, base] = take('math.log', ['x', 'base?'], positional, named, line);
    const value = logarithm(numberOf('math.log', x, line), line);
    if (base === undefined) return new StarFloat(value);
    const divisor = logarithm(numberOf('math.log', base, line), line);
    if (divisor === 0) fail(line, 'the base of a logarithm is 1');
    return new StarFloat(value / divisor);
  }),
  pow: new StarFunction('math.pow', (_, positional, named, line) => {
    const [x, y] = take('math.pow', ['x', 'y'], positional, named, line);
    return new StarFloat(pow(numberOf('math.pow', x, line), numberOf('math.pow', y, line)));
  }),
  sqrt: real('sqrt', (x, line) => (x < 0 ? fail(line, 'math.sqrt takes no negative number') : Math.sqrt(x))),
  e: new StarFloat(Math.E),
  pi: new StarFloat(Math.PI),
  inf: new StarFloat(Number.POSITIVE_INFINITY),
};

function logarithm(x: number, line: number): number {
  return x > 0 ? log(x) : fail(line, `math.log takes a number over 0, not ${x}`);
}

export const mathModule: StarRecord = new StarRecord(
  new RecordShape('math', Object.fromEntries(Object.keys(members).map((name) => [name, 'value' as const]))),
  Object.values(members),
);
