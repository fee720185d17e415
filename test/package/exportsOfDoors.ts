/**
 * Exports that do not check the kinds of what they get, in groups that say why: TypeScript does. All others are swept by
 * each-export-refuses-what-it-cannot-take.
 */

interface Parts {
  readonly reason: string;
  readonly names: readonly string[];
}

const words = (text: string): readonly string[] => text.trim().split(/\s+/);

export const parts: readonly Parts[] = [
  {
    reason: 'Runs for each block, token or step, where a check would cost more than the work.',
    names: words(`
      blockBox boxBytes boxShape boxStrides contains intersect rowOffsetBytes sameBox unitAt unitBox unitCount
      writeBlockRuns writeCopyRuns writeRuns countRuns digestWords digestBytes elementAt keyToHex halved useRates isOurs
      squaresOf passArrived planOf isLoadBetter tierName tierTitle isHostStore isTopStore SlotLocks
      LoadedBlock.is OpenBlock.is SealingBlock.is
      kvUtilization utilizationSaturation effectiveLoad estimatedWaitUs warmupFactor isClosedLoop deadlineUs
      averageStep withAdapterOverhead batchOf sumBatch toTicks linearFeatures expertsTouched gemmUs isWarmUp regimeOf scoreOf
      localKvBytesPerToken localWeightBytes modeledDigest fnv1a64 partitionSeed StreamPool StreamPool.stream
      arrivalSampler gammaVariate lengthSampler weibullScale weibullShape blockHash byteTokens
      classOf countedMeanMs countedPercentileMs jainIndex meanMs meetsTargets metTargets percentile percentileMs
      wasTurnedAway attainedOf hitRateOf requestRow traceRow shown shownPlain splitCsv
      anyIsReported cachedBlocks dueUs uncachedTokens dominates gainOf isMetricName written linkName startsAtPage openTelemetryName nameIn
      emptyItem mismatchedWords patternItem patternKey keyOfSeed policiesName`),
  },
  {
    reason: 'Another export makes it: a user holds one, reads it, or names its type.',
    names: words(`
      KVScheduler PagedAttentionCache ReadyLayers RequestQueue WaitingRequest StepOutcome StepPlan BlockTable
      BlockUse LoadedBlock OpenBlock SealingBlock Openings UseTable JobCarrier RetentionPolicy BlockKeys
      CanonicalWriter ComputePace LinkPace restoreState saveState
      CacheAllocation CachePage KVBlockDescriptor BlockMoves CachedMigration KernelTable LiveDevice
      SimulationSnapshot RequestTape Instance KeysNeeded PromptKeys SimRequest TokenTimes VirtualClock StatelessPolicy
      BatchSums FlooredModel PhysicalFloor Flights LinkModel TransferTimeline SharedServer RequestTable ValueCounts
      ChromeTrace Decisions ScaleRecords ScalingReport Occupancy Spread
      WorkloadDigest WorkloadSummarizer TokenReader CsvHeader TakenColumns TraceLine
      RunWatch CacheMeasures RequestMeasures TenantMeasures TierMeasures ValueHistogram SimulationExplainer
      FaultClock CachePicture`),
  },
  {
    reason: 'A value or a helper of the interpreter of policies, which gets what the interpreter made.',
    names: words(`
      StarDict StarFloat StarFunction StarList StarRecord StarTuple StarlarkInstance repr Meter mentions textHash
      decidedInput InputTable requireChoice requireChoicePlace requireIndex requireNumber invalidDecision quoted`),
  },
  {
    reason: 'An error, or a helper that words one: it must never throw another while it is made.',
    names: words(`
      TierKVError PolicyError IoError TimeIsUp nearestName unknownName requireElements`),
  },
];

export const inner: ReadonlySet<string> = new Set(parts.flatMap(({ names }) => names));

const optional = 'undefined [object Object]';
const numbers = '-1 1.5 1152921504606847000';

/**
 * Kinds of values that a call takes rightly in all of its places: options that may be left out, texts where texts are asked
 * for. `all` is for calls that take anything, or nothing.
 */
export const takesAnything: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    words(
      'tableMemory simulationChoices defaultLimits bundleSchema describePolicies metricsText settled testSeed tierLinks',
    ).map((name) => [name, 'all']),
  ),
  // a request's field, of which it says what is wrong
  transferWish: 'all',
  // JSON of any value
  canonicalJson: 'all',
  contentHash: 'all',
  ...Object.fromEntries(
    words('checkMigratorOptions openDevice checkControl SloPriorities distributionSpec prometheus').map(
      (name) => [name, optional],
    ),
  ),
  // a classifier of one's own has functions
  HotColdClassifier: `${optional} [object Map] [object Uint8Array] function`,
  ...Object.fromEntries(words('policyId policyNodes idleSlots').map((name) => [name, '[object Object]'])),
  ...Object.fromEntries(
    words(`observers nonNegativeLeastSquares formatStepRecords headOfLineBlocking compareRecorded cacheMetrics
      transferMetrics fitLognormal meansBySetting firstPolicies hypervolume paretoRanks`).map((name) => [
      name,
      '[object Array]',
    ]),
  ),
  ...Object.fromEntries(
    words('requireReportTarget LogReader addTierName modelFileName settingOf LogFrameReader keyOf').map(
      (name) => [name, 'text'],
    ),
  ),
  ...Object.fromEntries(
    words('diurnalWindows drainWindows timeoutUsOf SeededRandom').map((name) => [name, numbers]),
  ),
  descriptionText: 'undefined [object Array]',
  GoRandom: 'bigint',
  PartitionedRandom: 'bigint',
  summarize: '[object Uint8Array]',
  distributionOf: '[object Uint8Array]',
};
