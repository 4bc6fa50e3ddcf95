"""What an exported file of whole steps does before it imports the engine."""

import sys
from importlib import import_module
from unittest.mock import MagicMock

# Code for GPUs that the scheduler's modules import and never use.
try:
    import_module("vllm.model_executor.layers.fused_moe.routed_experts_capturer")
except ImportError:
    sys.modules["vllm.model_executor.layers.fused_moe.routed_experts_capturer"] = MagicMock()
try:
    import_module("vllm.distributed.kv_transfer.kv_connector.v1.hisparse.worker")
except ImportError:
    sys.modules["vllm.distributed.kv_transfer.kv_connector.v1.hisparse.worker"] = MagicMock()
