import { describe, expect, test } from 'vitest';
import { evaluate, runInBoth } from './bothEngines.ts';

describe('expressions', () => {
  test.each([
    ['1 + 2 * 3', '7'],
    ['7 // -2', '-4'],
    ['7 % -2', '-1'],
    ['-7 // 2', '-4'],
    ['-7 % 3', '2'],
    ['7 / 2', '3.5'],
    ['1.0', '1.0'],
    ['1e100', '1e+100'],
    ['0.1 + 0.2', '0.30000000000000004'],
    ['1 == 1.0', 'True'],
    ['True == 1', 'False'],
    ['(1 << 10) | 5 & 4 ^ 1', '1029'],
    ['~5', '-6'],
    ['"a" + "b" * 3', '"abbb"'],
    ['[1, 2] + [3] * 2', '[1, 2, 3, 3]'],
    ['(1,)', '(1,)'],
    ['()', '()'],
    ['{"a": 1} | {"b": 2, "a": 3}', '{"a": 3, "b": 2}'],
    ['1 if [] else 2', '2'],
    ['None or "x"', '"x"'],
    ['0 and fail()', '0'],
    ['not 1 in [2]', 'True'],
    ['1 not in {1: 2}', 'False'],
    ['"ell" in "hello"', 'True'],
    ['[1, 2, 3, 4, 5][1:4:2]', '[2, 4]'],
    ['"hello"[::-1]', '"olleh"'],
    ['[1, 2, 3][-1]', '3'],
    ['range(10)[2:8:3]', 'range(2, 8, 3)'],
    ['list(range(5, 0, -2))', '[5, 3, 1]'],
    ['[x * y for x in range(3) for y in [1, 10] if x != 1]', '[0, 0, 2, 20]'],
    ['{k: len(k) for k in ["a", "bb"]}', '{"a": 1, "bb": 2}'],
    ['[lambda: 1][0]()', '1'],
    ['(lambda x, y = 2: x + y)(1)', '3'],
    ['"%s is %d, %r, 100%%" % ("x", 3, "y")', '"x is 3, \\"y\\", 100%"'],
    ['"{} {1}".format(1)', 'policy_runtime 2 format mixes {} and {0}. Use one of them'],
    ['"{a}-{0!r}".format("q", a = 2)', '"2-\\"q\\""'],
    ['sorted([3, 1, 2], reverse = True)', '[3, 2, 1]'],
    ['sorted(["bb", "a", "cc"], key = len)', '["a", "bb", "cc"]'],
    ['max([1, 5, 3])', '5'],
    ['min(4, 2, key = lambda x: -x)', '4'],
    [
      '[type(x) for x in [None, True, 1, 1.0, "", [], (), {}, range(1), len]]',
      '["NoneType", "bool", "int", "float", "string", "list", "tuple", "dict", "range", "builtin_function_or_method"]',
    ],
    ['int("ff", 16) + int("0x10", 0) + int(3.9) + int(True)', '275'],
    ['float("1e3") + float(True)', '1001.0'],
    ['"a,b,,c".split(",")', '["a", "b", "", "c"]'],
    ['"  a b  c ".split()', '["a", "b", "c"]'],
    ['"a b c d".rsplit(" ", 2)', '["a b", "c", "d"]'],
    ['"a-b-c".partition("-")', '("a", "-", "b-c")'],
    ['"abcabc".replace("b", "X", 1)', '"aXcabc"'],
    ['"abc".replace("", "-")', '"-a-b-c-"'],
    ['"abcabc".rfind("b")', '4'],
    ['"one two".title()', '"One Two"'],
    ['", ".join(["a", "b"])', '"a, b"'],
    ['dict([("a", 1)], b = 2)', '{"a": 1, "b": 2}'],
    ['list(zip([1, 2], "ab".elems()))', '[(1, "a"), (2, "b")]'],
    ['list(enumerate(["a"], 5))', '[(5, "a")]'],
    ['math.sqrt(2.0) * math.floor(2.7)', '2.8284271247461903'],
    ['math.exp(1.0) - math.e < 1e-15', 'True'],
    ['[1, 2] < [1, 3]', 'True'],
    ['(1, "b") > (1, "a")', 'True'],
    ['getattr(math, "nothing", 7)', '7'],
    ['"\\u00e9\\x41\\n"', '"éA\\n"'],
    ['r"\\n"', '"\\\\n"'],
  ])('%s is %s', (expression, value) => {
    expect(evaluate(expression)).toBe(value);
  });
});

describe('statements', () => {
  test('loops, unpacking, break, continue and a return out of nested loops', () => {
    const source = `
def first(rows):
    for i, row in enumerate(rows):
        for x in row:
            if x < 0:
                continue
            if x == 9:
                break
            if x > 3:
                return (i, x)
    return None

def main():
    rows = [[1, -5], [9, 4], [2, 7]]
    found = first(rows)
    rows.append(1)
    [a, (b, c)] = [1, (2, 3)]
    a += 4
    d = {"k": [0]}
    d["k"][0] += 5
    d["k"] += [1]
    return [found, len(rows), a, b, c, d]
`;
    expect(runInBoth(source).value).toBe('[(2, 7), 4, 5, 2, 3, {"k": [5, 1]}]');
  });

  test('arguments by position, by name, with defaults and with rests', () => {
    const source = `
def f(a, b = 2, *rest, c, d = 4, **named):
    return [a, b, rest, c, d, named]

def main():
    return [f(1, c = 3), f(1, 5, 6, 7, c = 8, e = 9), f(*[1, 2], **{"c": 3, "z": 4})]
`;
    expect(runInBoth(source).value).toBe(
      '[[1, 2, (), 3, 4, {}], [1, 5, (6, 7), 8, 4, {"e": 9}], [1, 2, (), 3, 4, {"z": 4}]]',
    );
  });

  test('a function sees the variables around it, and a comprehension has its own', () => {
    const source = `
def main():
    x = 1
    def add(y):
        return x + y
    x = 10
    seen = [x for x in [5, 6]]
    return [add(1), seen, x]
`;
    expect(runInBoth(source).value).toBe('[11, [5, 6], 10]');
  });
});

describe('a call leaves nothing for the next one', () => {
  test.each([
    ['a global list', 'seen = []\ndef main():\n    seen.append(1)\n', 2],
    ['a default', 'def main(seen = []):\n    seen.append(1)\n', 2],
    [
      'a variable of an outer function',
      'def make():\n    seen = []\n    def f():\n        seen.append(1)\n    return f\nmain = make()\n',
      3,
    ],
    ['what a lambda of the module holds', 'fs = [lambda: x.append(1) for x in [[1]]]\nmain = fs[0]\n', 1],
  ])('%s is frozen', (_, source) => {
    expect(runInBoth(source).error).toMatch(
      /^policy_runtime \d+ the list belongs to the module and is frozen. Copy it first/,
    );
  });
});

describe('a text that does not compile', () => {
  test.each([
    ['def main():\n  return nam\nname = 1', /^compile 2 nam is not defined. Do you mean name\?/],
    ['def main():\n  while True:\n    pass', /^compile 2 Starlark has no "while"/],
    ['import os', /^compile 1 Nothing can be imported/],
    ['load("x", "y")', /^compile 1 Nothing can be loaded/],
    ['x = 1\nx = 2', /^compile 2 the global x is assigned twice/],
    ['for i in [1]:\n  pass', /^compile 1 "for" stands outside a function/],
    ['def main():\n return 1 < 2 < 3', /^compile 2 comparisons cannot be chained/],
    ['def main():\n\treturn 1', /^compile 2 a tab stands in the indentation/],
    ['def main():\n   x = 1\n  y = 2', /^compile 3 2 spaces fit no block/],
    ['def main(a, a):\n  pass', /^compile 1 the parameter a stands there twice/],
    ['def main():\n  return "abc', /^compile 2 a string is not closed/],
    ['def main():\n  return 99999999999999999', /^compile 2 99999999999999999 is over 2\^53/],
    ['def main():\n  f.x = 1', /^compile 2 nothing can be assigned to this. Fields are read-only/],
    ['def main():\n  return (x for x in [])', /^compile 2 there are no generators/],
    ['def main():\n  break', /^compile 2 "break" stands outside a loop/],
    ['x = 2 ** 3', /^compile 1 Starlark has no operator "\*\*"/],
    ['x = not !1', /^compile 1 "!" does not belong in a program. Write "not x", or a != b/],
    ['@cache\ndef main():\n  return 1', /^compile 1 "@" .* There are no decorators/],
    ['def main():\n  return f"{1}"', /^compile 2 there are no strings with f before them/],
    ['def main():\n  return [1, 2\n\nX = 1\n', /^compile 2 the "\[" of this line is not closed/],
    ['def main():\n  return 1_000', /^compile 2 numbers have no "_"/],
    ['def main(a: int):\n  return 1', /^compile 1 there are no types of parameters. Write a alone/],
    ['def main() -> int:\n  return 1', /^compile 1 there are no types of results/],
    ['def main():\n  x: int = 1', /^compile 2 there are no types of variables/],
    [
      'def main():\n  if 1:\n    x = 1\n  else if 2:\n    x = 2',
      /^compile 4 Starlark has no "else if". Write "elif"/,
    ],
    ['def main():\n  x = 1\n  x++', /^compile 3 a value is expected behind "\+". To count, write x \+= 1/],
    ['def main():\n  return 1 if 2 is 2 else 2', /^compile 2 Starlark has no "is". Compare with ==/],
    ['def main():\n  return 1 && 2', /^compile 2 Starlark has no "&&". Write "and"/],
    ['def main():\n  return {1, 2}', /^compile 2 there are no sets/],
    ['def main():\n  return null', /^compile 2 null is not defined. Write None/],
    ['def main():\n  return sum([1])', /^compile 2 sum is not defined. Add up in a loop/],
    ['def main():\n  return exp(1.0)', /^compile 2 exp is not defined. Write math.exp/],
    ['def main():\n  print(1)', /^compile 2 print is not defined. A policy prints nothing/],
    ['Here we are', /^compile 1 the end of the line is expected, not "we". A line is one statement/],
    ['x = 1 $ 2', /^compile 1 "\$" does not belong in a program/],
    [`x = ${'('.repeat(100)}1${')'.repeat(100)}`, /^compile 1 the text nests deeper than 48 levels/],
    [`x = ${'1 + '.repeat(500)}1`, /^compile 1 the text nests deeper than 96 levels/],
    ['y = 1', /^contract {2}the function main is missing/],
    ['main = 3', /^contract {2}main is a function in a policy, not int/],
  ])('%j', (source, error) => {
    expect(runInBoth(source).error).toMatch(error);
  });
});

describe('errors while a program runs', () => {
  test.each([
    ['1 / 0', /division by zero/],
    ['1 + "a"', /"\+" does not take int and string/],
    ['1 + None', /"\+" does not take int and NoneType. Give a variable that holds None a number first/],
    ['2.0 * True', /"\*" does not take float and bool. Write int\(x\)/],
    ['"a" + 1', /"\+" does not take string and int. Write str\(x\)/],
    ['[1][2 / 2]', /an index is an int, not float. Write int\(x\), or divide by \/\//],
    ['[].length', /list has no field or method length. Write len\(x\)/],
    ['[1][5]', /the index 5 is outside the list of 1 elements/],
    ['{}["k"]', /the key "k" is not in the dict. Use get/],
    ['{[]: 1}', /list cannot be a key. Use a tuple/],
    ['"abc".uper()', /string has no field or method uper. Do you mean upper\?/],
    ['(1).constructor', /int has no field or method constructor/],
    ['[].__proto__', /list has no field or method __proto__/],
    ['"x".__class__', /string has no field or method __class__/],
    ['{}.hasOwnProperty("x")', /dict has no field or method hasOwnProperty/],
    ['9007199254740991 + 1', /the result is over 2\^53/],
    ['main()', /main calls itself/],
    ['len(1)', /int has no length/],
    ['len()', /len lacks its argument x/],
    ['[x for x in 5]', /a loop cannot run over int/],
    ['[] < {}', /list and dict have no order/],
    ['fail("no", 1)', /the policy gives up: no 1/],
    ['1(2)', /int cannot be called/],
    ['math.log(0)', /math.log takes a number over 0/],
    ['"%d" % "x"', /%d takes an int, not string/],
  ])('%s', (expression, error) => {
    const result = runInBoth(`def main():\n    return ${expression}\n`);
    expect(result.error).toMatch(/^policy_runtime (1|2) /);
    expect(result.error).toMatch(error);
  });

  test('a variable without a value, and a list that changes while a loop runs over it', () => {
    expect(runInBoth('def main():\n  if False:\n    x = 1\n  return x').error).toMatch(
      /2?4 x has no value yet/,
    );
    expect(runInBoth('def main():\n  l = [1]\n  for x in l:\n    l.append(x)').error).toMatch(
      /4 the list changes while a loop runs over it/,
    );
  });
});
