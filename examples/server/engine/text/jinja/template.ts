/**
 * Templates in Jinja as transformers renders them: `trim_blocks`, `lstrip_blocks`, loop controls, `generation`
 * blocks, and its functions. A template is parsed once into functions, and rendered with values each time.
 * Loops and output are bounded, since a template comes with a model.
 */

import { filterNamed, hashable, mappingOf, testNamed } from './filters.ts';
import { type Token, tokenize } from './lexer.ts';
import { getAttribute, getItem, slice } from './methods.ts';
import {
  Attributes,
  arithmetic,
  Callable,
  compare,
  contains,
  equal,
  fromJson,
  isNumber,
  iterate,
  JinjaError,
  type Kwargs,
  Namespace,
  plain,
  Range,
  str,
  Tuple,
  truth,
  typeName,
  Undefined,
  undefinedError,
} from './values.ts';

/** Most turns of all loops of one rendering together. */
const turnsMax = 5_000_000;
/** Most characters of a rendering. */
const outputMax = 2 ** 26;
/** As Jinja's sandbox. */
const rangeMax = 100_000;

interface Budget {
  turns: number;
  characters: number;
}

class Scope {
  readonly variables: Map<string, unknown> = new Map();
  readonly parent: Scope | undefined;
  readonly budget: Budget;

  constructor(parent: Scope | undefined, budget: Budget) {
    this.parent = parent;
    this.budget = budget;
  }

  inner(): Scope {
    return new Scope(this, this.budget);
  }

  get(name: string): unknown {
    for (let at: Scope | undefined = this; at !== undefined; at = at.parent) {
      const value = at.variables.get(name);
      if (value !== undefined) return value;
    }
    return new Undefined(`'${name}'`);
  }
}

type Expression = (scope: Scope) => unknown;
type Jump = 'break' | 'continue' | undefined;
type Statement = (scope: Scope, out: string[]) => Jump;
type Target = (scope: Scope, value: unknown) => void;

export class Template {
  readonly #body: Statement;

  /** @throws JinjaError for a template that does not parse */
  constructor(text: string) {
    this.#body = new Parser(tokenize(text)).template();
  }

  /** @param values as JSON has them @throws JinjaError as Jinja would, and for what takes too long */
  render(values: object): string {
    const globals = new Scope(undefined, { turns: 0, characters: 0 });
    for (const [name, value] of Object.entries(functions)) globals.variables.set(name, value);
    const scope = globals.inner();
    for (const [name, value] of Object.entries(values)) {
      if (value !== undefined) scope.variables.set(name, fromJson(value));
    }
    const out: string[] = [];
    this.#body(scope, out);
    return out.join('');
  }
}

function write(scope: Scope, out: string[], text: string): void {
  scope.budget.characters += text.length;
  if (scope.budget.characters > outputMax) throw new JinjaError('the text becomes too long');
  out.push(text);
}

function turn(scope: Scope): void {
  if (++scope.budget.turns > turnsMax) throw new JinjaError(`the loops take more than ${turnsMax} turns`);
}

function blockText(body: Statement, scope: Scope): string {
  const out: string[] = [];
  body(scope, out);
  return out.join('');
}

const noKwargs: Kwargs = new Map();

function call(callee: unknown, args: readonly unknown[], kwargs: Kwargs): unknown {
  if (callee instanceof Callable) return callee.call(args, kwargs);
  if (callee instanceof Undefined) throw undefinedError(callee);
  const again = callee instanceof Attributes ? callee.get('__call__') : undefined;
  if (again instanceof Callable) return again.call(args, kwargs);
  throw new JinjaError(`'${typeName(callee)}' object is not callable`);
}

const functions: Readonly<Record<string, Callable>> = {
  range: new Callable('range', (args) => {
    const [from, to, step] = args.length > 1 ? args : [0n, ...args];
    const [a, b, by] = [from, to, step ?? 1n].map((value) => {
      if (isNumber(value) && typeof value !== 'number') return plain(value) as bigint;
      throw new JinjaError(`'${typeName(value)}' object cannot be interpreted as an integer`);
    });
    if (by === 0n) throw new JinjaError('range() arg 3 must not be zero');
    const items: bigint[] = [];
    for (let at = a; by > 0n ? at < b : at > b; at += by) {
      if (items.length >= rangeMax)
        throw new JinjaError(`Range too big. The sandbox blocks ranges larger than ${rangeMax}.`);
      items.push(at);
    }
    return new Range(items, `range(${a}, ${b}${by === 1n ? '' : `, ${by}`})`);
  }),
  dict: new Callable('dict', (args, kwargs) => mappingOf(args, kwargs)),
  namespace: new Callable('namespace', (args, kwargs) => {
    const namespace = new Namespace();
    for (const [name, value] of mappingOf(args, kwargs)) namespace.values.set(checkedName(name), value);
    return namespace;
  }),
  raise_exception: new Callable('raise_exception', ([message]) => {
    throw new JinjaError(str(message));
  }),
  strftime_now: new Callable('strftime_now', ([format]) => strftime(new Date(), str(format))),
  cycler: new Callable('cycler', (items) => {
    let at = 0;
    return new Attributes('Cycler', (name) => {
      if (name === 'current') return items[at];
      if (name === 'next') {
        return new Callable('next', () => {
          const item = items[at];
          at = (at + 1) % items.length;
          return item;
        });
      }
      if (name !== 'reset') return undefined;
      return new Callable('reset', () => {
        at = 0;
        return null;
      });
    });
  }),
  joiner: new Callable('joiner', ([by = ', ']) => {
    let isUsed = false;
    return new Callable('joiner', () => {
      const text = isUsed ? by : '';
      isUsed = true;
      return text;
    });
  }),
};

function checkedName(name: unknown): unknown {
  if (typeof name === 'string' && name.startsWith('_')) {
    throw new JinjaError(`a namespace must not hold ${name}: it begins with an underscore`);
  }
  return name;
}

function strftime(now: Date, format: string): string {
  const english = (options: Intl.DateTimeFormatOptions): string =>
    new Intl.DateTimeFormat('en-US', options).format(now);
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = Math.floor(
    (Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) - Date.UTC(now.getFullYear(), 0, 1)) /
      86_400_000,
  );
  const parts: Readonly<Record<string, () => string>> = {
    Y: () => String(now.getFullYear()),
    y: () => two(now.getFullYear() % 100),
    m: () => two(now.getMonth() + 1),
    d: () => two(now.getDate()),
    e: () => String(now.getDate()).padStart(2),
    H: () => two(now.getHours()),
    I: () => two(now.getHours() % 12 || 12),
    M: () => two(now.getMinutes()),
    S: () => two(now.getSeconds()),
    f: () => String(now.getMilliseconds() * 1000).padStart(6, '0'),
    p: () => (now.getHours() < 12 ? 'AM' : 'PM'),
    j: () => String(day + 1).padStart(3, '0'),
    a: () => english({ weekday: 'short' }),
    A: () => english({ weekday: 'long' }),
    b: () => english({ month: 'short' }),
    h: () => english({ month: 'short' }),
    B: () => english({ month: 'long' }),
    w: () => String(now.getDay()),
    u: () => String(now.getDay() || 7),
    F: () => strftime(now, '%Y-%m-%d'),
    T: () => strftime(now, '%H:%M:%S'),
    R: () => strftime(now, '%H:%M'),
    D: () => strftime(now, '%m/%d/%y'),
    x: () => strftime(now, '%m/%d/%y'),
    X: () => strftime(now, '%H:%M:%S'),
    c: () => strftime(now, '%a %b %e %H:%M:%S %Y'),
    n: () => '\n',
    t: () => '\t',
    Z: () => '',
    z: () => '',
    '%': () => '%',
  };
  return format.replace(/%(-?)([a-zA-Z%])/g, (whole, bare: string, kind: string) => {
    const part = Object.hasOwn(parts, kind) ? parts[kind]() : whole;
    return bare === '' ? part : part.replace(/^[0 ]+(?=.)/, '');
  });
}

interface Parameter {
  readonly name: string;
  readonly otherwise: Expression | undefined;
}

interface MoreArguments {
  readonly takesMore: boolean;
  readonly takesNames: boolean;
}

interface Arguments {
  readonly args: (scope: Scope) => unknown[];
  readonly kwargs: (scope: Scope) => Map<string, unknown>;
}

class Parser {
  readonly #tokens: readonly Token[];
  #at = 0;
  #loops = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  template(): Statement {
    const body = this.#block([]);
    if (this.#token.kind !== 'end') throw this.#unexpected();
    return body;
  }

  get #token(): Token {
    return this.#tokens[this.#at];
  }

  #unexpected(): JinjaError {
    const { kind, value } = this.#token;
    return new JinjaError(
      kind === 'end' ? 'unexpected end of template' : `unexpected ${JSON.stringify(value)}`,
    );
  }

  #is(value: string, kind: Token['kind'] = 'operator'): boolean {
    return this.#token.kind === kind && this.#token.value === value;
  }

  #skip(value: string, kind: Token['kind'] = 'operator'): boolean {
    if (!this.#is(value, kind)) return false;
    this.#at++;
    return true;
  }

  #expect(value: string, kind: Token['kind'] = 'operator'): void {
    if (!this.#skip(value, kind)) throw this.#unexpected();
  }

  #name(): string {
    const { kind, value } = this.#token;
    if (kind !== 'name') throw this.#unexpected();
    this.#at++;
    return value;
  }

  /** Statements up to a tag with one of these names, which stays to be read. */
  #block(ends: readonly string[]): Statement {
    const statements: Statement[] = [];
    for (;;) {
      const { kind, value } = this.#token;
      if (kind === 'data') {
        this.#at++;
        statements.push((scope, out) => {
          write(scope, out, value);
          return undefined;
        });
      } else if (this.#skip('{{', 'open')) {
        const expression = this.#tuple();
        this.#expect('}}', 'close');
        statements.push((scope, out) => {
          write(scope, out, str(expression(scope)));
          return undefined;
        });
      } else if (kind === 'open') {
        const tag = this.#tokens[this.#at + 1];
        if (tag.kind === 'name' && ends.includes(tag.value)) break;
        this.#at++;
        statements.push(this.#statement(this.#name()));
      } else break;
    }
    return (scope, out) => {
      for (const statement of statements) {
        const jump = statement(scope, out);
        if (jump !== undefined) return jump;
      }
      return undefined;
    };
  }

  /** Statements up to one of the tags, whose name is read. */
  #body(...ends: string[]): { body: Statement; end: string } {
    const body = this.#block(ends);
    this.#expect('{%', 'open');
    return { body, end: this.#name() };
  }

  #closed(): void {
    this.#expect('%}', 'close');
  }

  #statement(tag: string): Statement {
    switch (tag) {
      case 'if':
        return this.#if();
      case 'for':
        return this.#for();
      case 'set':
        return this.#set();
      case 'macro':
        return this.#macro();
      case 'call':
        return this.#call();
      case 'filter':
        return this.#filter();
      case 'with':
        return this.#with();
      case 'break':
      case 'continue':
        if (this.#loops === 0) throw new JinjaError(`${tag} outside of a loop`);
        this.#closed();
        return () => tag;
      case 'generation':
      case 'autoescape':
      case 'block':
        return this.#plainBlock(tag);
      default:
        throw new JinjaError(`Encountered unknown tag '${tag}'`);
    }
  }

  #plainBlock(tag: string): Statement {
    while (!this.#is('%}', 'close')) {
      if (tag === 'generation' || this.#token.kind === 'end') throw this.#unexpected();
      this.#at++;
    }
    this.#closed();
    const { body } = this.#body(`end${tag}`);
    if (tag === 'block' && this.#token.kind === 'name') this.#at++;
    this.#closed();
    return (scope, out) => body(scope.inner(), out);
  }

  #if(): Statement {
    const branches: { test: Expression; body: Statement }[] = [];
    let otherwise: Statement | undefined;
    for (let end = 'elif'; end !== 'endif'; ) {
      let test: Expression | undefined;
      if (end === 'elif') test = this.#tuple(false);
      this.#closed();
      const part = test === undefined ? this.#body('endif') : this.#body('elif', 'else', 'endif');
      if (test === undefined) otherwise = part.body;
      else branches.push({ test, body: part.body });
      end = part.end;
    }
    this.#closed();
    return (scope, out) => {
      for (const { test, body } of branches) if (truth(test(scope))) return body(scope, out);
      return otherwise?.(scope, out);
    };
  }

  #for(): Statement {
    const target = this.#target(true);
    if (!this.#skip('in', 'name')) throw this.#unexpected();
    const list = this.#tuple(false, ['recursive']);
    const test = this.#skip('if', 'name') ? this.#expression() : undefined;
    const isRecursive = this.#skip('recursive', 'name');
    this.#closed();
    this.#loops++;
    const main = this.#body('else', 'endfor');
    this.#loops--;
    let otherwise: Statement | undefined;
    if (main.end === 'else') {
      this.#closed();
      otherwise = this.#body('endfor').body;
    }
    this.#closed();
    const { body } = main;
    const run = (scope: Scope, out: string[], value: unknown, depth: number): Jump => {
      let items = iterate(value);
      if (test !== undefined) {
        items = items.filter((item) => {
          turn(scope);
          const inner = scope.inner();
          target(inner, item);
          return truth(test(inner));
        });
      }
      let before: unknown;
      for (let at = 0; at < items.length; at++) {
        turn(scope);
        const inner = scope.inner();
        target(inner, items[at]);
        const index = at;
        const last = items.length;
        inner.variables.set(
          'loop',
          new Attributes('LoopContext', (name) => {
            switch (name) {
              case 'index':
                return BigInt(index + 1);
              case 'index0':
                return BigInt(index);
              case 'revindex':
                return BigInt(last - index);
              case 'revindex0':
                return BigInt(last - index - 1);
              case 'first':
                return index === 0;
              case 'last':
                return index === last - 1;
              case 'length':
                return BigInt(last);
              case 'depth':
                return BigInt(depth + 1);
              case 'depth0':
                return BigInt(depth);
              case 'previtem':
                return index === 0 ? new Undefined('the first item has no previous item') : items[index - 1];
              case 'nextitem':
                return index === last - 1
                  ? new Undefined('the last item has no next item')
                  : items[index + 1];
              case 'cycle':
                return new Callable('cycle', (args) => {
                  if (args.length === 0) throw new JinjaError('no items for cycling given');
                  return args[index % args.length];
                });
              case 'changed':
                return new Callable('changed', (args) => {
                  const isSame = before !== undefined && equal(before, [...args]);
                  before = [...args];
                  return !isSame;
                });
              case '__call__':
                if (!isRecursive)
                  throw new JinjaError('The loop must have the recursive marker to be called.');
                return new Callable('loop', ([next]) => {
                  const inside: string[] = [];
                  run(scope, inside, next, depth + 1);
                  return inside.join('');
                });
              default:
                return undefined;
            }
          }),
        );
        if (body(inner, out) === 'break') break;
      }
      return items.length === 0 ? otherwise?.(scope.inner(), out) : undefined;
    };
    return (scope, out) => run(scope, out, list(scope), 0);
  }

  #set(): Statement {
    const target = this.#target(false);
    if (this.#skip('=')) {
      const value = this.#tuple();
      this.#closed();
      return (scope) => {
        target(scope, value(scope));
        return undefined;
      };
    }
    const filter = this.#is('|') ? this.#filters((scope) => scope.get(' block')) : undefined;
    this.#closed();
    const { body } = this.#body('endset');
    this.#closed();
    return (scope) => {
      const text = blockText(body, scope.inner());
      if (filter === undefined) target(scope, text);
      else {
        const inner = scope.inner();
        inner.variables.set(' block', text);
        target(scope, filter(inner));
      }
      return undefined;
    };
  }

  #filter(): Statement {
    // As if the block stood before a bar.
    this.#at--;
    const filter = this.#filters((scope) => scope.get(' block'), true);
    this.#closed();
    const { body } = this.#body('endfilter');
    this.#closed();
    return (scope, out) => {
      const inner = scope.inner();
      inner.variables.set(' block', blockText(body, scope.inner()));
      write(scope, out, str(filter(inner)));
      return undefined;
    };
  }

  #with(): Statement {
    const pairs: { target: Target; value: Expression }[] = [];
    while (!this.#is('%}', 'close')) {
      if (pairs.length > 0) this.#expect(',');
      const target = this.#target(false);
      this.#expect('=');
      pairs.push({ target, value: this.#expression() });
    }
    this.#closed();
    const { body } = this.#body('endwith');
    this.#closed();
    return (scope, out) => {
      const inner = scope.inner();
      const values = pairs.map(({ value }) => value(scope));
      pairs.forEach(({ target }, i) => {
        target(inner, values[i]);
      });
      return body(inner, out);
    };
  }

  #parameters(): Parameter[] {
    const parameters: Parameter[] = [];
    this.#expect('(');
    while (!this.#skip(')')) {
      if (parameters.length > 0) {
        this.#expect(',');
        if (this.#skip(')')) break;
      }
      const name = this.#name();
      parameters.push({ name, otherwise: this.#skip('=') ? this.#expression() : undefined });
    }
    return parameters;
  }

  #macroOf(
    name: string,
    parameters: readonly Parameter[],
    body: Statement,
    more: MoreArguments,
  ): (scope: Scope) => Callable {
    return (scope) =>
      new Callable(name, (args, kwargs) => {
        turn(scope);
        const inner = scope.inner();
        const left = new Map(kwargs);
        const values = inner.variables;
        values.set('caller', left.get('caller') ?? new Undefined('No caller defined, which'));
        left.delete('caller');
        const { takesMore, takesNames } = more;
        if (args.length > parameters.length && !takesMore) {
          throw new JinjaError(`macro '${name}' takes not more than ${parameters.length} argument(s)`);
        }
        parameters.forEach((parameter, i) => {
          if (i < args.length) values.set(parameter.name, args[i]);
          else if (left.has(parameter.name)) values.set(parameter.name, left.get(parameter.name));
          else if (parameter.otherwise !== undefined) values.set(parameter.name, parameter.otherwise(inner));
          else
            values.set(
              parameter.name,
              new Undefined(`parameter '${parameter.name}' was not provided, which`),
            );
          left.delete(parameter.name);
        });
        const [unknown] = left.keys();
        if (unknown !== undefined && !takesNames) {
          throw new JinjaError(`macro '${name}' takes no keyword argument '${unknown}'`);
        }
        values.set('varargs', Tuple.of(...args.slice(parameters.length)));
        values.set('kwargs', left);
        return blockText(body, inner);
      });
  }

  /** Whether the tokens since `from` name what holds arguments beyond the parameters. */
  #moreSince(from: number): MoreArguments {
    const names = this.#tokens.slice(from, this.#at).filter(({ kind }) => kind === 'name');
    const has = (name: string): boolean => names.some(({ value }) => value === name);
    return { takesMore: has('varargs'), takesNames: has('kwargs') };
  }

  #macro(): Statement {
    const name = this.#name();
    const parameters = this.#parameters();
    this.#closed();
    const from = this.#at;
    const { body } = this.#outsideLoops(() => this.#body('endmacro'));
    const more = this.#moreSince(from);
    if (this.#token.kind === 'name') this.#at++;
    this.#closed();
    const macro = this.#macroOf(name, parameters, body, more);
    return (scope) => {
      scope.variables.set(name, macro(scope));
      return undefined;
    };
  }

  #outsideLoops<T>(parse: () => T): T {
    const loops = this.#loops;
    this.#loops = 0;
    const result = parse();
    this.#loops = loops;
    return result;
  }

  #call(): Statement {
    const parameters = this.#is('(') ? this.#parameters() : [];
    const callee = this.#postfix(this.#primary(), false);
    const { args, kwargs } = this.#arguments();
    this.#closed();
    const from = this.#at;
    const { body } = this.#outsideLoops(() => this.#body('endcall'));
    const more = this.#moreSince(from);
    this.#closed();
    const caller = this.#macroOf('caller', parameters, body, more);
    return (scope, out) => {
      const named = kwargs(scope).set('caller', caller(scope));
      write(scope, out, str(call(callee(scope), args(scope), named)));
      return undefined;
    };
  }

  /** What is assigned to: a name, an attribute of a namespace, or several of them. */
  #target(isLoop: boolean): Target {
    const targets: Target[] = [];
    let isTuple = false;
    do {
      if (targets.length > 0 && !this.#is('(') && (this.#token.kind !== 'name' || this.#is('in', 'name')))
        break;
      if (this.#skip('(')) {
        targets.push(this.#target(true));
        this.#expect(')');
      } else {
        const name = this.#name();
        if (!isLoop && this.#skip('.')) {
          const attribute = this.#name();
          targets.push((scope, value) => {
            const namespace = scope.get(name);
            if (!(namespace instanceof Namespace))
              throw new JinjaError('cannot assign attribute on non-namespace object');
            namespace.values.set(checkedName(attribute), value);
          });
        } else targets.push((scope, value) => void scope.variables.set(name, value));
      }
      if (this.#is(',')) isTuple = true;
    } while (this.#skip(','));
    if (!isTuple) return targets[0];
    return (scope, value) => {
      const items = iterate(value);
      if (items.length !== targets.length) {
        const size = items.length > targets.length ? 'too many' : 'not enough';
        throw new JinjaError(`${size} values to unpack (expected ${targets.length}, got ${items.length})`);
      }
      targets.forEach((target, i) => {
        target(scope, items[i]);
      });
    };
  }

  /** An expression, or several with commas, which are a tuple. */
  #tuple(hasCondition = true, ends: readonly string[] = []): Expression {
    const parse = (): Expression => (hasCondition ? this.#expression() : this.#or());
    const first = parse();
    if (!this.#is(',')) return first;
    const items = [first];
    while (this.#skip(',')) {
      const { kind, value } = this.#token;
      if (kind === 'close' || this.#is(')') || (kind === 'name' && ends.includes(value))) break;
      items.push(parse());
    }
    return (scope) => Tuple.of(...items.map((item) => item(scope)));
  }

  #expression(): Expression {
    let value = this.#or();
    while (this.#skip('if', 'name')) {
      const [then, test] = [value, this.#or()];
      const otherwise = this.#skip('else', 'name') ? this.#expression() : undefined;
      value = (scope) => {
        if (truth(test(scope))) return then(scope);
        return otherwise === undefined
          ? new Undefined('the inline if-expression without else')
          : otherwise(scope);
      };
    }
    return value;
  }

  #or(): Expression {
    let left = this.#and();
    while (this.#skip('or', 'name')) {
      const [a, b] = [left, this.#and()];
      left = (scope) => {
        const value = a(scope);
        return truth(value) ? value : b(scope);
      };
    }
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.#skip('and', 'name')) {
      const [a, b] = [left, this.#not()];
      left = (scope) => {
        const value = a(scope);
        return truth(value) ? b(scope) : value;
      };
    }
    return left;
  }

  #not(): Expression {
    if (!this.#skip('not', 'name')) return this.#compare();
    const value = this.#not();
    return (scope) => !truth(value(scope));
  }

  #compare(): Expression {
    const first = this.#sum();
    const rest: { test: (a: unknown, b: unknown) => boolean; value: Expression }[] = [];
    for (;;) {
      const { kind, value } = this.#token;
      const next = this.#tokens[this.#at + 1];
      const isNotIn = this.#is('not', 'name') && next.kind === 'name' && next.value === 'in';
      let test: ((a: unknown, b: unknown) => boolean) | undefined;
      if (kind === 'operator' && Object.hasOwn(comparisons, value)) test = comparisons[value];
      else if (this.#is('in', 'name')) test = (a, b) => contains(b, a);
      else if (isNotIn) test = (a, b) => !contains(b, a);
      if (test === undefined) break;
      this.#at += isNotIn ? 2 : 1;
      rest.push({ test, value: this.#sum() });
    }
    if (rest.length === 0) return first;
    return (scope) => {
      let left = first(scope);
      return rest.every(({ test, value }) => {
        const right = value(scope);
        const holds = test(left, right);
        left = right;
        return holds;
      });
    };
  }

  #binary(operators: readonly string[], operand: () => Expression): Expression {
    let left = operand();
    while (this.#token.kind === 'operator' && operators.includes(this.#token.value)) {
      const { value: operator } = this.#token;
      this.#at++;
      const [a, b] = [left, operand()];
      left = (scope) => arithmetic(operator, a(scope), b(scope));
    }
    return left;
  }

  #sum(): Expression {
    return this.#binary(['+', '-'], () => this.#concat());
  }

  #concat(): Expression {
    const product = (): Expression =>
      this.#binary(['*', '/', '//', '%'], () => this.#binary(['**'], () => this.#unary()));
    const parts = [product()];
    while (this.#skip('~')) parts.push(product());
    return parts.length === 1 ? parts[0] : (scope) => parts.map((part) => str(part(scope))).join('');
  }

  #unary(hasFilters = true): Expression {
    let value: Expression;
    if (this.#is('-') || this.#is('+')) {
      const sign = this.#token.value;
      this.#at++;
      const operand = this.#unary(false);
      value = (scope) => {
        const number = operand(scope);
        if (number instanceof Undefined) throw undefinedError(number);
        if (!isNumber(number))
          throw new JinjaError(`bad operand type for unary ${sign}: '${typeName(number)}'`);
        return sign === '-' ? -plain(number) : plain(number);
      };
      value = this.#postfix(value, true);
    } else value = this.#postfix(this.#primary(), true);
    return hasFilters ? this.#filters(value) : value;
  }

  #primary(): Expression {
    const { kind, value } = this.#token;
    this.#at++;
    if (kind === 'name') {
      if (Object.hasOwn(constants, value)) {
        const constant = constants[value];
        return () => constant;
      }
      return (scope) => scope.get(value);
    }
    if (kind === 'text') {
      let text = value;
      for (; this.#token.kind === 'text'; this.#at++) text += this.#token.value;
      return () => text;
    }
    if (kind === 'int') {
      const number = BigInt(/^0+$/.test(value) ? 0 : value);
      return () => number;
    }
    if (kind === 'float') {
      const number = Number(value);
      return () => number;
    }
    if (kind === 'operator' && value === '(') {
      if (this.#skip(')')) return () => Tuple.of();
      const inner = this.#tuple();
      this.#expect(')');
      return inner;
    }
    if (kind === 'operator' && value === '[') {
      const items = this.#items(']', () => this.#expression());
      return (scope) => items.map((item) => item(scope));
    }
    if (kind === 'operator' && value === '{') {
      const entries = this.#items('}', (): [Expression, Expression] => {
        const key = this.#expression();
        this.#expect(':');
        return [key, this.#expression()];
      });
      return (scope) => new Map(entries.map(([key, each]) => [hashable(key(scope)), each(scope)]));
    }
    this.#at--;
    throw this.#unexpected();
  }

  #items<T>(close: string, parse: () => T): T[] {
    const items: T[] = [];
    while (!this.#skip(close)) {
      if (items.length > 0) {
        this.#expect(',');
        if (this.#skip(close)) break;
      }
      items.push(parse());
    }
    return items;
  }

  /** Attributes, items and calls behind a value. */
  #postfix(value: Expression, hasCalls: boolean): Expression {
    let object = value;
    for (;;) {
      const inner = object;
      if (this.#skip('.')) {
        const { kind, value: name } = this.#token;
        this.#at++;
        if (kind === 'name') object = (scope) => getAttribute(inner(scope), name);
        else if (kind === 'int') object = (scope) => getItem(inner(scope), BigInt(name));
        else throw new JinjaError('expected name or number');
      } else if (this.#skip('[')) object = this.#subscript(inner);
      else if (this.#is('(') && (hasCalls || this.#callsAgain())) {
        const { args, kwargs } = this.#arguments();
        object = (scope) => call(inner(scope), args(scope), kwargs(scope));
      } else return object;
    }
  }

  /** Whether what stands behind these parentheses goes on with the value; else they are the call of a call block. */
  #callsAgain(): boolean {
    let depth = 0;
    for (let at = this.#at; ; at++) {
      const { kind, value } = this.#tokens[at];
      if (kind === 'close' || kind === 'end') return false;
      if (kind === 'operator' && '([{'.includes(value)) depth++;
      if (kind === 'operator' && ')]}'.includes(value) && --depth === 0)
        return this.#tokens[at + 1].kind !== 'close';
    }
  }

  #subscript(object: Expression): Expression {
    const parts: (Expression | undefined)[] = [];
    let isSlice = false;
    const part = (): Expression | undefined =>
      this.#is(':') || this.#is(']') || this.#is(',') ? undefined : this.#expression();
    parts.push(part());
    while (this.#skip(':')) {
      isSlice = true;
      parts.push(part());
    }
    const more: Expression[] = [];
    while (!isSlice && this.#skip(',')) more.push(this.#expression());
    this.#expect(']');
    const [from, to, step] = parts;
    if (isSlice) return (scope) => slice(object(scope), from?.(scope), to?.(scope), step?.(scope));
    if (from === undefined) throw new JinjaError('expected subscript expression');
    if (more.length === 0) return (scope) => getItem(object(scope), from(scope));
    return (scope) => getItem(object(scope), Tuple.of(from(scope), ...more.map((each) => each(scope))));
  }

  #arguments(): Arguments {
    type Piece = {
      readonly kind: 'value' | 'spread' | 'named' | 'namedSpread';
      readonly name: string;
      readonly value: Expression;
    };
    this.#expect('(');
    const pieces = this.#items(')', (): Piece => {
      if (this.#skip('*')) return { kind: 'spread', name: '', value: this.#expression() };
      if (this.#skip('**')) return { kind: 'namedSpread', name: '', value: this.#expression() };
      const next = this.#tokens[this.#at + 1];
      if (this.#token.kind === 'name' && next.kind === 'operator' && next.value === '=') {
        const name = this.#name();
        this.#at++;
        return { kind: 'named', name, value: this.#expression() };
      }
      return { kind: 'value', name: '', value: this.#expression() };
    });
    return {
      args: (scope) =>
        pieces.flatMap(({ kind, value }) => {
          if (kind === 'value') return [value(scope)];
          return kind === 'spread' ? iterate(value(scope)) : [];
        }),
      kwargs: (scope) => {
        const named = new Map<string, unknown>();
        for (const { kind, name, value } of pieces) {
          if (kind === 'named') named.set(name, value(scope));
          if (kind === 'namedSpread')
            for (const [key, each] of mappingOf([value(scope)], noKwargs)) named.set(str(key), each);
        }
        return named;
      },
    };
  }

  /** Filters and tests behind a value. @param isBare whether the first filter stands without a bar */
  #filters(value: Expression, isBare = false): Expression {
    let result = value;
    let isFirst = isBare;
    for (;;) {
      const operand = result;
      if (isFirst ? this.#skip('filter', 'name') : this.#skip('|')) {
        isFirst = false;
        const name = this.#dottedName();
        const apply = filterNamed(name);
        const { args, kwargs } = this.#is('(') ? this.#arguments() : none;
        result = (scope) => apply(operand(scope), args(scope), kwargs(scope));
      } else if (!isBare && this.#skip('is', 'name')) result = this.#test(operand);
      else if (!isBare && this.#is('(')) {
        const { args, kwargs } = this.#arguments();
        result = (scope) => call(operand(scope), args(scope), kwargs(scope));
      } else return result;
    }
  }

  #dottedName(): string {
    let name = this.#name();
    while (this.#skip('.')) name += `.${this.#name()}`;
    return name;
  }

  #test(operand: Expression): Expression {
    const isNegated = this.#skip('not', 'name');
    const test = testNamed(this.#dottedName());
    const { kind, value } = this.#token;
    if (this.#is('is', 'name')) throw new JinjaError('You cannot chain multiple tests with is');
    let given: Arguments = none;
    if (this.#is('(')) given = this.#arguments();
    else if (
      ['text', 'int', 'float'].includes(kind) ||
      (kind === 'operator' && '[{'.includes(value)) ||
      (kind === 'name' && !['else', 'or', 'and', 'is', 'if', 'in', 'not', 'recursive'].includes(value))
    ) {
      const argument = this.#postfix(this.#primary(), true);
      given = { args: (scope) => [argument(scope)], kwargs: none.kwargs };
    }
    const { args, kwargs } = given;
    return (scope) => test(operand(scope), args(scope), kwargs(scope)) !== isNegated;
  }
}

const none: Arguments = { args: () => [], kwargs: () => new Map() };

const constants: Readonly<Record<string, unknown>> = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
};

const comparisons: Readonly<Record<string, (a: unknown, b: unknown) => boolean>> = {
  '==': equal,
  '!=': (a, b) => !equal(a, b),
  '<': (a, b) => compare(a, b, '<') < 0,
  '<=': (a, b) => compare(a, b, '<=') <= 0,
  '>': (a, b) => compare(a, b, '>') > 0,
  '>=': (a, b) => compare(a, b, '>=') >= 0,
};
