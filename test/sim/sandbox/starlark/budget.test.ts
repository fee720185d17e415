import { describe, expect, test } from 'vitest';
import { runInBoth } from './bothEngines.ts';

const body = (text: string) =>
  `def main():\n${text
    .split('\n')
    .map((line) => `    ${line}`)
    .join('\n')}\n`;

describe('a program that wants too much', () => {
  test.each([
    ['a long loop', 'for i in range(1000000000):\n    pass', 'memory_limit'],
    ['nested loops', 'for a in range(1000):\n    for b in range(1000):\n        pass', 'step_limit'],
    ['a comprehension', 'return [0 for a in range(1000) for b in range(1000)]', 'memory_limit'],
    ['a list that doubles', 'l = [0]\nfor i in range(60):\n    l = l + l', 'memory_limit|step_limit'],
    ['a string that doubles', 's = "x"\nfor i in range(60):\n    s = s + s', 'memory_limit'],
    ['a huge string', 'return "x" * 9007199254740991', 'memory_limit'],
    ['a huge list', 'return [0] * 9007199254740991', 'memory_limit'],
    ['text by replace', 'return ("a" * 1000).replace("a", "b" * 1000)', 'memory_limit'],
    ['text by join', 'return ("b" * 9000).join(["a"] * 1000)', 'memory_limit'],
    ['text by format', 'return "{0}{0}{0}{0}{0}{0}{0}{0}{0}".format("x" * 300000)', 'memory_limit'],
    ['nested values shown', 'x = []\nfor i in range(3000):\n    x = [x]\nreturn str(x)', 'policy_runtime'],
    [
      'nested values compared',
      'x = []\ny = []\nfor i in range(900):\n    x = [x]\n    y = [y]\nreturn x == y',
      'policy_runtime',
    ],
    ['a value inside itself', 'x = []\nx.append(x)\nreturn str(x)', 'policy_runtime'],
    [
      'a wide tree shown',
      'x = [1]\nfor i in range(40):\n    x = [x, x]\nreturn str(x)',
      'memory_limit|step_limit',
    ],
    ['sorting', 'l = list(range(9000))\nreturn sorted(l, key = lambda x: -x)', 'step_limit'],
    ['keys that nest', 'x = ()\nfor i in range(200):\n    x = (x,)\nreturn {x: 1}', 'policy_runtime'],
  ])('%s', (_, text, kind) => {
    expect(runInBoth(body(text)).error).toMatch(new RegExp(`^(${kind}) `));
  });

  test('steps are counted, not timed', () => {
    const source = body('t = 0\nfor i in range(100):\n    t += i if i % 2 == 0 else 1\nreturn t');
    const { value, steps } = runInBoth(source);
    expect(value).toBe('2500');
    expect(steps).toBe(7 + 100 * (1 + 8) + 100 + 2);
  });
});
