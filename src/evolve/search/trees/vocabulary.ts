/** What the decision trees of a slot are made of. Search puts nothing else into them. */

export interface TreeFeature {
  readonly name: string;
  /** Range in which thresholds are drawn. */
  readonly min: number;
  readonly max: number;
}

export interface TreeAction {
  readonly name: string;
  /** Range of the number that it takes; without one it takes none. */
  readonly min?: number;
  readonly max?: number;
}

export interface TreeVocabulary {
  readonly features: readonly TreeFeature[];
  readonly actions: readonly TreeAction[];
}
