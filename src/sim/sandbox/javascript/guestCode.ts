/**
 * JavaScript that runs inside of the engine: what is taken away before a policy's program is read, and what
 * stands between the host's numbers and a function of it. Only names of the host and numbers get into it.
 */

import { decidedInput, type InputShape, mentions, type Signature } from '../calls/index.ts';

/** Turns of the engine for the host's own code at most, which no program pays for. */
export const OWN_CODE = 2_000_000;

/** Runs first. Dates, promises, proxies and regular expressions are not there at all. */
export const takenAway: string = `'use strict';
(() => {
  for (const name of ['eval', 'SharedArrayBuffer', 'Atomics', 'WeakRef', 'FinalizationRegistry']) {
    delete globalThis[name];
  }
  // what the host's own code is made of stays what it is
  for (const name of ['Float64Array', 'Array', 'Object', 'String']) {
    Object.defineProperty(globalThis, name, { writable: false, configurable: false });
  }
  Object.defineProperty(Math, 'random', {
    value() { throw new TypeError('a policy has no Math.random. Decide by what it is given'); },
  });
})();
`;

/** Numbers that the host sees in the engine's memory: rows of each input, results, then the inputs. */
export const shared = { rows: 0, results: 1, firstInput: 2 } as const;

/**
 * An expression that gives \`[call, resize, mark, text]\`: decide; make shared numbers of a length; mark
 * the first two of them; set a text.
 */
export function bindingCode(signature: Signature, source: string): string {
  const { name, inputs, decision } = signature;
  const shown = inputs.map((input, i) => inputCode(input, i, source));
  const values = inputs.map((_, i) => `input${i}.value(rows[${i}])`);
  return `(() => {
  'use strict';
  let rows = new Float64Array(0);
  let results = new Float64Array(0);
  const shared = [
    { get: () => rows, set: (numbers) => { rows = numbers; } },
    { get: () => results, set: (numbers) => { results = numbers; } },
  ];
  ${shown.join('\n  ')}
  const kindOf = (value) => {
    if (value === null || value === undefined) return String(value);
    return Array.isArray(value) ? 'an array' : typeof value === 'object' ? 'an object' : 'a ' + typeof value;
  };
  const call = () => {
    const value = ${name}(${values.join(', ')});
    ${decisionCode(decision, decidedInput(signature))}
  };
  return [
    call,
    (which, length) => { shared[which].set(new Float64Array(length)); },
    (which, number) => { const numbers = shared[which].get(); numbers[0] = number; numbers[1] = 2 * number; },
    (input, place, text) => { shared[input].texts[place] = text; },
  ];
})()`;
}

function inputCode({ kind, fields }: InputShape, i: number, source: string): string {
  const names = Object.keys(fields);
  const getters = names.flatMap((field, place) => {
    if (!mentions(source, field)) return [];
    const at = `[this.#start + ${place}]`;
    const read = {
      int: `data${at}`,
      float: `data${at}`,
      bool: `data${at} !== 0`,
      text: `(texts${at} ?? '')`,
    };
    return [`get ${field}() { return ${read[fields[field]]}; }`];
  });
  const list = `(count) => {
      for (let row = all.length; row < count; row++) all.push(new Row(row * ${names.length}));
      return lists[count] ??= Object.freeze(all.slice(0, count));
    }`;
  return `const input${i} = (() => {
    let data = new Float64Array(0);
    const texts = [];
    class Row {
      #start;
      constructor(start) { this.#start = start; Object.freeze(this); }
      ${getters.join('\n      ')}
    }
    Object.freeze(Row.prototype);
    Object.freeze(Row);
    const all = [new Row(0)];
    const lists = [];
    shared.push({ get: () => data, set: (numbers) => { data = numbers; }, texts });
    return { value: ${kind === 'record' ? '() => all[0]' : list} };
  })();`;
}

/** Writes the decision into \`results\`, or returns what is wrong with it. */
function decisionCode(decision: Signature['decision'], about: number): string {
  const wants = (what: string): string => `return 'returns ' + kindOf(value) + '. Return ${what}';`;
  switch (decision.kind) {
    case 'none':
      return '';
    case 'number':
    case 'index':
      return `if (typeof value !== 'number') ${wants('a number')}
    results[0] = value;`;
    case 'numbers':
      return `const count = rows[${about}];
    if (!Array.isArray(value) || value.length !== count) {
      const length = Array.isArray(value) ? ' of ' + value.length : '';
      return 'returns ' + kindOf(value) + length + '. Return an array of ' + count + ' numbers';
    }
    for (let i = 0; i < count; i++) {
      const number = value[i];
      if (typeof number !== 'number') return 'returns an array with ' + kindOf(number) + '. Return numbers';
      results[i] = number;
    }`;
    case 'choice': {
      const names = JSON.stringify(decision.names);
      const withAmount = JSON.stringify(decision.withAmount);
      return `const isPair = Array.isArray(value) && value.length === 2;
    const choice = isPair ? value[0] : value;
    if (typeof choice !== 'string') ${wants('one of its choices as a text')}
    const place = ${names}.indexOf(choice);
    if (place < 0) return 'returns "' + choice.slice(0, 40) + '". Return one of ' + ${JSON.stringify(names)};
    const needsAmount = ${withAmount}.includes(choice);
    if (needsAmount !== isPair || (isPair && typeof value[1] !== 'number')) {
      const right = needsAmount ? '["' + choice + '", amount]' : '"' + choice + '"';
      return 'returns "' + choice + '". Return ' + right;
    }
    results[0] = place;
    results[1] = isPair ? value[1] : 0;`;
    }
  }
}
