"""CPU kernels, one module per operator family; importing this package fills the table."""

from seamline_cpu.kernels import activations as activations
from seamline_cpu.kernels import arithmetic as arithmetic
from seamline_cpu.kernels import attention as attention
from seamline_cpu.kernels import attention_contrib as attention_contrib
from seamline_cpu.kernels import batch_normalization as batch_normalization
from seamline_cpu.kernels import casts as casts
from seamline_cpu.kernels import convolution as convolution
from seamline_cpu.kernels import convolution_fused as convolution_fused
from seamline_cpu.kernels import convolution_integer as convolution_integer
from seamline_cpu.kernels import convolution_transposed as convolution_transposed
from seamline_cpu.kernels import cumulative as cumulative
from seamline_cpu.kernels import dequantized_product as dequantized_product
from seamline_cpu.kernels import einsum as einsum
from seamline_cpu.kernels import elementwise as elementwise
from seamline_cpu.kernels import gathering as gathering
from seamline_cpu.kernels import gathering_quantized as gathering_quantized
from seamline_cpu.kernels import gemm_linear as gemm_linear
from seamline_cpu.kernels import group_query_attention as group_query_attention
from seamline_cpu.kernels import inference as inference
from seamline_cpu.kernels import layer_normalization as layer_normalization
from seamline_cpu.kernels import linear_attention as linear_attention
from seamline_cpu.kernels import linear_elementwise as linear_elementwise
from seamline_cpu.kernels import linear_pools as linear_pools
from seamline_cpu.kernels import linear_tables as linear_tables
from seamline_cpu.kernels import local_response as local_response
from seamline_cpu.kernels import logic as logic
from seamline_cpu.kernels import losses as losses
from seamline_cpu.kernels import machine_learning as machine_learning
from seamline_cpu.kernels import (
    machine_learning_classifiers as machine_learning_classifiers,
)
from seamline_cpu.kernels import (
    machine_learning_ensembles as machine_learning_ensembles,
)
from seamline_cpu.kernels import machine_learning_labels as machine_learning_labels
from seamline_cpu.kernels import made_tensors as made_tensors
from seamline_cpu.kernels import matmul as matmul
from seamline_cpu.kernels import matmul_bnb4 as matmul_bnb4
from seamline_cpu.kernels import matmul_fused as matmul_fused
from seamline_cpu.kernels import matmul_integer as matmul_integer
from seamline_cpu.kernels import matmul_nbits as matmul_nbits
from seamline_cpu.kernels import matmul_scaled as matmul_scaled
from seamline_cpu.kernels import mixture_of_experts as mixture_of_experts
from seamline_cpu.kernels import mixture_of_floats as mixture_of_floats
from seamline_cpu.kernels import newer_operators as newer_operators
from seamline_cpu.kernels import ngrams as ngrams
from seamline_cpu.kernels import padding as padding
from seamline_cpu.kernels import pooling as pooling
from seamline_cpu.kernels import pooling_global as pooling_global
from seamline_cpu.kernels import powers as powers
from seamline_cpu.kernels import quantize as quantize
from seamline_cpu.kernels import random as random
from seamline_cpu.kernels import recurrent as recurrent
from seamline_cpu.kernels import recurrent_bytes as recurrent_bytes
from seamline_cpu.kernels import reductions as reductions
from seamline_cpu.kernels import regions as regions
from seamline_cpu.kernels import resizing as resizing
from seamline_cpu.kernels import rotary as rotary
from seamline_cpu.kernels import sampled_points as sampled_points
from seamline_cpu.kernels import scattering as scattering
from seamline_cpu.kernels import shapes as shapes
from seamline_cpu.kernels import signal as signal
from seamline_cpu.kernels import skip_normalization as skip_normalization
from seamline_cpu.kernels import slicing as slicing
from seamline_cpu.kernels import softmax as softmax
from seamline_cpu.kernels import sorting as sorting
from seamline_cpu.kernels import strings as strings
from seamline_cpu.kernels import suppression as suppression
from seamline_cpu.kernels import training_steps as training_steps
from seamline_cpu.kernels import transposing as transposing
from seamline_cpu.table import TABLE

__all__ = ["TABLE"]
