/**
 * The syntax tree of a Starlark program. Before the program is compiled, `resolver.ts` fills in what each
 * name stands for and how many steps each piece costs.
 */

/** Where a name is kept. `depth` counts functions outwards from the one that uses it. */
export type Binding =
  | { readonly kind: 'local'; readonly slot: number; readonly depth: number; readonly isCertain: boolean }
  | { readonly kind: 'global'; readonly slot: number }
  | { readonly kind: 'builtin'; readonly name: string };

interface At {
  readonly line: number;
}

export interface NameExpression extends At {
  readonly kind: 'name';
  readonly name: string;
  binding: Binding | null;
}

interface CallExpression extends At {
  readonly kind: 'call';
  readonly callee: Expression;
  readonly positional: readonly Expression[];
  readonly named: readonly { readonly name: string; readonly value: Expression }[];
  /** `*args` and `**kwargs` of the call. */
  readonly rest: Expression | null;
  readonly namedRest: Expression | null;
}

export type ComprehensionClause =
  | {
      readonly kind: 'for';
      readonly target: Expression;
      readonly iterable: Expression;
      readonly line: number;
    }
  | { readonly kind: 'if'; readonly condition: Expression; readonly line: number };

export interface Comprehension extends At {
  readonly kind: 'comprehension';
  /** Set for a dict comprehension. */
  readonly key: Expression | null;
  readonly value: Expression;
  readonly clauses: readonly ComprehensionClause[];
}

export type BinaryOperator =
  | '+'
  | '-'
  | '*'
  | '/'
  | '//'
  | '%'
  | '&'
  | '|'
  | '^'
  | '<<'
  | '>>'
  | '=='
  | '!='
  | '<'
  | '<='
  | '>'
  | '>='
  | 'in'
  | 'not in';

export interface Parameter {
  readonly name: string;
  readonly default: Expression | null;
  readonly line: number;
}

/** A `def`, a lambda, or the module itself. */
export interface FunctionNode extends At {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  /** How many of `parameters` may be given by position; the others only by name. */
  readonly positionalCount: number;
  readonly rest: string | null;
  readonly namedRest: string | null;
  readonly body: readonly Statement[];
  /** Names of the slots: parameters first, then `rest`, `namedRest`, locals and comprehension variables. */
  slots: string[];
  /** Variables of outer functions that it or a function in it uses. `depth` counts from its own frame. */
  captures: { readonly slot: number; readonly depth: number }[];
  /** Its number in the program; the module is 0. */
  id: number;
}

export type Expression =
  | NameExpression
  | CallExpression
  | Comprehension
  | (At & { readonly kind: 'integer' | 'float'; readonly value: number })
  | (At & { readonly kind: 'text'; readonly value: string })
  | (At & { readonly kind: 'list' | 'tuple'; readonly elements: readonly Expression[] })
  | (At & { readonly kind: 'dict'; readonly entries: readonly (readonly [Expression, Expression])[] })
  | (At & {
      readonly kind: 'unary';
      readonly operator: '-' | '+' | '~' | 'not';
      readonly operand: Expression;
    })
  | (At & {
      readonly kind: 'binary';
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
    })
  | (At & {
      readonly kind: 'logical';
      readonly operator: 'and' | 'or';
      readonly left: Expression;
      readonly right: Expression;
    })
  | (At & {
      readonly kind: 'conditional';
      readonly condition: Expression;
      readonly whenTrue: Expression;
      readonly whenFalse: Expression;
    })
  | (At & { readonly kind: 'attribute'; readonly object: Expression; readonly name: string })
  | (At & { readonly kind: 'index'; readonly object: Expression; readonly index: Expression })
  | (At & {
      readonly kind: 'slice';
      readonly object: Expression;
      readonly start: Expression | null;
      readonly stop: Expression | null;
      readonly step: Expression | null;
    })
  | (At & { readonly kind: 'lambda'; readonly function: FunctionNode });

export type Statement = At & {
  /** Steps to charge before the statement runs. Statements that always run together share one charge. */
  charge: number;
} & (
    | { readonly kind: 'expression'; readonly value: Expression }
    | { readonly kind: 'assign'; readonly target: Expression; readonly value: Expression }
    | {
        readonly kind: 'augment';
        readonly target: Expression;
        readonly operator: BinaryOperator;
        readonly value: Expression;
      }
    | {
        readonly kind: 'if';
        readonly condition: Expression;
        readonly then: readonly Statement[];
        readonly else: readonly Statement[];
      }
    | {
        readonly kind: 'for';
        readonly target: Expression;
        readonly iterable: Expression;
        readonly body: readonly Statement[];
      }
    | { readonly kind: 'def'; readonly target: NameExpression; readonly function: FunctionNode }
    | { readonly kind: 'return'; readonly value: Expression | null }
    | { readonly kind: 'break' | 'continue' | 'pass' }
  );
